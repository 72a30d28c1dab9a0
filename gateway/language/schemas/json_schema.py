"""Compiles JSON Schemas with jsonschema-rs. The same eight formats are validated in every dialect."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import islice
from typing import Final

import jsonschema_rs
import msgspec
import orjson
from jsonschema_rs import ValidationErrorKind as Kind
from msgspec.structs import replace

from gateway.config.diagnostics.problems import Problems
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.schemas.errors import SchemaError, describe
from gateway.language.schemas.keywords import properties_of, rewritten
from gateway.language.schemas.rules import (
    DIALECTS,
    PATTERN_OPTIONS,
    check_schema,
    dialect_of,
    mentions,
    plain,
)
from gateway.language.schemas.validation_cost import ValidationCost, guarded
from gateway.wire.jsonrpc import is_deeper

MAX_ERRORS: Final = 10

_MAX_NODES: Final = 1000
"""Maximum nodes of a value in a search for all errors. For larger values, only the first error is found."""
_FREE_TEXT: Final = ("$comment", "description", "title")

_MAX_ROUNDS: Final = 5
"""Maximum rounds of removing unsupported members. Each of the four steps of `check_schema` can find others."""
_REVERSING: Final = frozenset({"not", "if", "oneOf", "contains", "unevaluatedItems", "unevaluatedProperties"})
_TO_MEMBER: Final = re.compile(rb'[rR]ef":"#(?:"|/properties/)')
_DRAFT_07: Final = "http://json-schema.org/draft-07/schema"
_DRAFT: Final = re.compile(r"draft-0[467]/|draft/(?:2019-09|2020-12)/")


class Validator(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    schema: JsonObject
    engine: jsonschema_rs.Validator
    """Engine for the schema without descriptions, so that tools with equal schemas share one engine."""
    cost: ValidationCost
    is_foreign: bool
    """Whether another server validates values again. If so, values that are too expensive to check are accepted."""
    is_valid: Callable[[Json], bool]

    def errors(self, instance: Json, *, noun: str = "member") -> list[SchemaError]:
        """Return up to `MAX_ERRORS` errors. `noun` is the word for a member of the value, such as `argument`."""
        if (excess := self.cost.limit_exceeded(instance)) is not None:
            return [] if self.is_foreign else [SchemaError(path=(), message=excess)]
        if self.engine.is_valid(instance):
            return []
        if not self._is_too_large_for_words(instance):
            diagnostics = self.engine.iter_errors(instance)
        elif self.cost.has_alternatives:
            return [SchemaError(path=(), message="does not match the schema, and is too large to locate the error")]
        else:
            diagnostics = iter([self._first_error(instance)])
        return list(islice(self._described(diagnostics, noun=noun), MAX_ERRORS))

    def _first_error(self, instance: Json) -> jsonschema_rs.ValidationError:
        try:
            self.engine.validate(instance)
        except jsonschema_rs.ValidationError as error:
            return error
        raise AssertionError("the value is invalid")

    def diagnostics(self, instance: Json) -> list[jsonschema_rs.ValidationError]:
        """Return the errors of jsonschema-rs, or none for a value that is too large or too expensive to check."""
        if self._is_too_large_for_words(instance) or self.cost.limit_exceeded(instance) is not None:
            return []
        return list(self.engine.iter_errors(instance))

    def _is_too_large_for_words(self, instance: Json) -> bool:
        if _has_more_nodes(instance, than=min(_MAX_NODES, self.cost.worded_nodes)):
            return True
        depth = self.cost.worded_depth
        return depth is not None and is_deeper(instance, depth)

    def _described(self, diagnostics: Iterable[jsonschema_rs.ValidationError], *, noun: str) -> Iterator[SchemaError]:
        said = set()
        for diagnostic in diagnostics:
            if self.is_foreign and isinstance(diagnostic.kind, Kind.BacktrackLimitExceeded):
                continue
            for error in describe(diagnostic, self.schema, noun=noun):
                if str(error) not in said:
                    said.add(str(error))
                    yield error


def compile_schema(
    schema: JsonObject,
    problems: Problems,
    *,
    what: str = "schema",
    place: Callable[[DocumentPath], DocumentPath] = lambda path: path,
) -> Validator:
    """Compile a schema. If it has errors, report them and return a validator that accepts everything.

    `place` maps a path in the schema to the path at which errors are reported, relative to `problems`.
    """
    compiled = _compiled(schema)
    if isinstance(compiled, Validator):
        return compiled
    for schema_problem in compiled:
        problems.at(*place(schema_problem.path)).error(f"not a valid {what}: {schema_problem.message}")
    return _ANYTHING


def validation_errors(schema: JsonObject, instance: Json) -> list[SchemaError]:
    """Return the reasons why a value does not match a schema. No value matches an invalid schema."""
    compiled = _compiled(schema)
    if isinstance(compiled, Validator):
        return compiled.errors(instance)
    return [SchemaError(path=(), message=f"the schema is invalid: {problem.message}") for problem in compiled]


def schema_problem_in(schema: JsonObject) -> str | None:
    compiled = _compiled(schema)
    return None if isinstance(compiled, Validator) else compiled[0].message


def compile_foreign_schema(schema: JsonObject) -> tuple[Validator, list[SchemaError]]:
    """Compile the supported part of another server's schema. Return the validator and the unsupported parts.

    The validator accepts every value that the schema accepts, and possibly more: an unsupported keyword below a member
    in `properties` makes the validator accept any value of that member, and elsewhere any value at all. So do keywords
    such as `not` beside references to members. Members with a default are optional.
    """
    unchecked: dict[str, SchemaError] = {}
    checked = rewritten(_with_known_dialect(schema), _drop_required_defaults)
    for _ in range(_MAX_ROUNDS):
        compiled = _compiled(checked, is_foreign=True)
        if isinstance(compiled, Validator):
            return compiled, list(unchecked.values())
        # Use the message as the key, because a keyword below `allOf` can be reported at several paths.
        unchecked = {**{problem.message: problem for problem in compiled}, **unchecked}
        paths = [problem.path for problem in compiled]
        if any(path[:1] != ("properties",) or len(path) == 1 for path in paths):
            break
        # Where these keywords refer to a member that accepts more values, they reject more values.
        if mentions(checked, _REVERSING) and _TO_MEMBER.search(orjson.dumps(checked)):
            break
        checked["properties"] |= {path[1]: True for path in paths}
    return _ANYTHING, list(unchecked.values())


def _with_known_dialect(schema: JsonObject) -> JsonObject:
    named = _DRAFT.search(str(schema.get("$schema", "")))
    # Treat older drafts as draft-07, where a boolean `exclusiveMinimum` is invalid and removed.
    found = None if named is None else next((uri for uri in DIALECTS if named[0] in uri), _DRAFT_07)
    return schema if found is None else {**schema, "$schema": found}


def _drop_required_defaults(schema: dict[str, Json]) -> None:
    required, members = schema.get("required"), properties_of(schema)
    if isinstance(required, list):
        # Several generators list members with a default as required.
        schema["required"] = [
            name
            for name in required
            if not (isinstance(name, str) and isinstance(member := members.get(name), dict) and "default" in member)
        ]


def _compiled(schema: JsonObject, *, is_foreign: bool = False) -> Validator | list[SchemaError]:
    copy = plain(schema)
    if isinstance(copy, SchemaError):
        return [copy]
    # The cache key is text, because 1, 1.0 and true are equal in Python.
    shared = _shared(orjson.dumps(rewritten(copy, _drop_free_text)), is_foreign=is_foreign)
    return replace(shared, schema=copy) if isinstance(shared, Validator) else shared


def _drop_free_text(schema: dict[str, Json]) -> None:
    for keyword in _FREE_TEXT:
        # Keep values of other types, so that the metaschema rejects them.
        if isinstance(schema.get(keyword), str):
            del schema[keyword]


@lru_cache(maxsize=1024)
def _shared(data: bytes, *, is_foreign: bool) -> Validator | list[SchemaError]:
    schema: dict[str, Json] = orjson.loads(data)
    cost, dialect = check_schema(schema), dialect_of(schema)
    if not isinstance(cost, ValidationCost):
        return cost
    assert dialect is not None  # noqa: S101 - `check_schema` rejects unknown dialects
    try:
        engine = DIALECTS[dialect](
            guarded(schema, cost, accepts_longer=is_foreign),
            formats=_FORMATS,
            validate_formats=True,
            pattern_options=PATTERN_OPTIONS,
            offline=True,
        )
    except ValueError as error:  # rejected by the engine only
        return [SchemaError(path=(), message=str(error).partition("\n")[0])]
    is_valid = engine.is_valid if cost.is_light else partial(_is_cheap_and_valid, engine, cost, is_foreign)
    return Validator(schema=schema, engine=engine, cost=cost, is_foreign=is_foreign, is_valid=is_valid)


def _is_cheap_and_valid(engine: jsonschema_rs.Validator, cost: ValidationCost, is_foreign: bool, value: Json) -> bool:  # noqa: FBT001
    # Check the cost first: the engine cannot be interrupted and holds the GIL.
    return is_foreign if cost.limit_exceeded(value) is not None else engine.is_valid(value)


_NOT_ASSERTED: Final = (
    "duration", "hostname", "idn-email", "idn-hostname", "iri", "iri-reference", "json-pointer", "regex",
    "relative-json-pointer", "uri-reference", "uri-template",
)  # fmt: skip
_FORMATS: Final[dict[str, Callable[..., bool]]] = {
    **dict.fromkeys(_NOT_ASSERTED, lambda _text: True),
    # Draft-07 does not define this format.
    "uuid": jsonschema_rs.Draft202012Validator({"format": "uuid"}, validate_formats=True).is_valid,
}

_EMPTY: Final = jsonschema_rs.Draft202012Validator({})
_ANYTHING: Final = Validator(
    schema={}, engine=_EMPTY, cost=ValidationCost(), is_foreign=False, is_valid=_EMPTY.is_valid
)


def _has_more_nodes(value: Json, *, than: int) -> bool:
    waiting, seen = [value], 0
    while waiting and seen <= than:
        node = waiting.pop()
        seen += 1
        if isinstance(node, dict):
            waiting.extend(islice(node.values(), than))
        elif isinstance(node, list):
            waiting.extend(islice(node, than))
    return seen > than or bool(waiting)
