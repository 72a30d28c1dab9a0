"""Compiles a JSON Schema once for all calls; a value that fits costs little, one that does not gets reasons.

Why jsonschema-rs: validation costs about a microsecond, patterns run in linear time or under a backtracking limit, and
formats are asserted. Those asserted are the eight that CONFIG names, in every dialect.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Final

import jsonschema_rs
import msgspec
import orjson
from jsonschema_rs import ValidationErrorKind as Kind

from gateway.config.diagnostics.problems import Problems
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.schemas.errors import SchemaError, describe
from gateway.language.schemas.keywords import ONE_SCHEMA, SCHEMA_LISTS, SCHEMA_MAPS, rewritten
from gateway.language.schemas.rules import (
    DIALECTS,
    PATTERN_OPTIONS,
    check_schema,
    dialect_of,
    is_deeper,
    plain,
)
from gateway.language.schemas.validation_cost import ValidationCost, guarded

MAX_ERRORS: Final = 10

_MAX_NODES: Final = 1000
"""Values of more nodes are cut before errors are looked for: the engine collects all of them, with a message each."""
_KEPT_ITEMS: Final = 16
_KEPT_DEPTH: Final = 4
_FREE_TEXT: Final = ("$comment", "description", "title")

_MAX_ROUNDS: Final = 16
"""Removing a keyword may show what is wrong with another one."""
_DRAFT_07: Final = "http://json-schema.org/draft-07/schema"
_DRAFT: Final = re.compile(r"draft-0[467]/|draft/(?:2019-09|2020-12)/")
_RESTRICTED_BY: Final = {
    "properties": ("additionalProperties",),
    "patternProperties": ("additionalProperties",),
    "prefixItems": ("items",),
    "items": ("additionalItems",),
}
"""Keywords that apply to more values where the other one is missing."""


class SchemaShape(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A schema without its free text, checked and compiled; one for all tools that take the same."""

    schema: JsonObject
    engine: jsonschema_rs.Validator
    cost: ValidationCost
    is_foreign: bool = False
    """Whether another server validates, too, so that values whose check would cost too much are accepted here."""


class Validator:
    """Validates values against one schema."""

    def __init__(self, schema: JsonObject, shape: SchemaShape) -> None:
        self.schema = schema
        self.shape = shape
        self.is_valid: Callable[[Json], bool] = shape.engine.is_valid
        self._engine = shape.engine
        self._cost = shape.cost
        if not shape.cost.is_light:
            self.is_valid = self._is_valid_and_no_excess

    def errors(self, instance: Json, *, noun: str = "member") -> list[SchemaError]:
        """Return why `instance` does not fit, the first few reasons; nothing if it fits.

        `noun` is what a member of the outermost object is called: `argument`.
        """
        # Before the engine sees the value: it cannot be interrupted, and holds the interpreter's lock.
        if (excess := self._cost.limit_exceeded(instance)) is not None:
            return [] if self.shape.is_foreign else [SchemaError(path=(), message=excess)]
        if self._engine.is_valid(instance):
            return []
        if self._is_too_large_for_words(instance):
            return self._errors_of_large(instance, noun=noun)
        return list(islice(self._described(instance, noun=noun), MAX_ERRORS))

    def diagnostics(self, instance: Json) -> list[jsonschema_rs.ValidationError]:
        """Return the engine's own errors, for coercion; nothing for a large value."""
        if self._is_too_large_for_words(instance) or self._cost.limit_exceeded(instance) is not None:
            return []
        return list(self._engine.iter_errors(instance))

    def _is_valid_and_no_excess(self, instance: Json) -> bool:
        if self._cost.limit_exceeded(instance) is not None:
            return self.shape.is_foreign
        return self._engine.is_valid(instance)

    def _is_too_large_for_words(self, instance: Json) -> bool:
        if _has_more_nodes(instance, than=min(_MAX_NODES, self._cost.worded_nodes)):
            return True
        depth = self._cost.worded_depth
        return depth is not None and is_deeper(instance, than=depth)

    def _described(self, instance: Json, *, noun: str) -> Iterator[SchemaError]:
        said = set()
        for diagnostic in self._engine.iter_errors(instance):
            if self.shape.is_foreign and isinstance(diagnostic.kind, Kind.BacktrackLimitExceeded):
                continue
            for error in describe(diagnostic, self.schema, noun=noun):
                if str(error) not in said:
                    said.add(str(error))
                    yield error

    def _errors_of_large(self, instance: Json, *, noun: str) -> list[SchemaError]:
        cut: set[DocumentPath] = set()
        depth = min(_KEPT_DEPTH, self._cost.worded_depth or _KEPT_DEPTH)
        kept = _cut_down(instance, (), cut, depth)

        def is_of_the_cut(path: DocumentPath) -> bool:
            # A list that is too short now, or a member that is missing now.
            return path in cut or (_has(instance, path) and not _has(kept, path))

        described = self._described(kept, noun=noun)
        errors = list(islice((error for error in described if not is_of_the_cut(error.path)), MAX_ERRORS))
        return errors or [SchemaError(path=(), message="does not fit the schema, and is too large to say where")]


def compile_schema(
    schema: JsonObject,
    problems: Problems,
    *,
    what: str = "schema",
    place: Callable[[DocumentPath], DocumentPath] = lambda path: path,
) -> Validator:
    """Check and compile `schema`. If it is broken, report each problem and return a validator that accepts anything.

    `place` maps a path in the schema to where that was written, below `problems`.
    """
    compiled = _compiled(schema)
    if isinstance(compiled, Validator):
        return compiled
    for schema_problem in compiled:
        problems.at(*place(schema_problem.path)).error(f"not a valid {what}: {schema_problem.message}")
    return Validator({}, _ANYTHING)


def validation_errors(schema: JsonObject, instance: Json) -> list[SchemaError]:
    """The reason why `instance` does not fit a schema that arrived at runtime; nothing fits a broken schema."""
    compiled = _compiled(schema)
    if isinstance(compiled, Validator):
        return compiled.errors(instance)
    return [SchemaError(path=(), message=f"the schema is broken: {problem.message}") for problem in compiled]


def schema_problem_in(schema: JsonObject) -> str | None:
    """The reason why a schema that arrived at runtime is broken; None if it is not."""
    compiled = _compiled(schema)
    return None if isinstance(compiled, Validator) else compiled[0].message


def compile_foreign_schema(schema: JsonObject) -> tuple[Validator, list[SchemaError]]:
    """Compile a schema of another server as far as the engine takes it; return also what is not checked.

    The validator accepts every value that the schema accepts: what it cannot check is left out, and with it what could
    refuse more because of that. A member with a default may be missing, even if it is required.
    """
    unchecked: dict[str, SchemaError] = {}
    checked = rewritten(_with_known_dialect(schema), _drop_required_defaults)
    for _ in range(_MAX_ROUNDS):
        compiled = _compiled(checked, is_foreign=True)
        if isinstance(compiled, Validator):
            return compiled, list(unchecked.values())
        # By message, as a keyword may be reported again at another path, below `allOf`.
        unchecked = {**{problem.message: problem for problem in compiled}, **unchecked}
        if any(problem.path in ((), ("$schema",)) for problem in compiled):
            break
        checked = rewritten(checked, _drop_negations)
        for problem in compiled:
            _leave_out(checked, problem.path)
    return Validator({}, _ANYTHING), list(unchecked.values())


def _with_known_dialect(schema: JsonObject) -> JsonObject:
    named = _DRAFT.search(str(schema.get("$schema", "")))
    # What older drafts have and draft-07 does not, such as a boolean `exclusiveMinimum`, is left out like the rest.
    found = None if named is None else next((uri for uri in DIALECTS if named[0] in uri), _DRAFT_07)
    return schema if found is None else {**schema, "$schema": found}


def _drop_required_defaults(schema: dict[str, Json]) -> None:
    required, members = schema.get("required"), schema.get("properties")
    if isinstance(required, list) and isinstance(members, dict):
        # Several generators list such a member as required: it is, in what the server works with.
        schema["required"] = [
            name
            for name in required
            if not (isinstance(name, str) and isinstance(member := members.get(name), dict) and "default" in member)
        ]


def _drop_negations(schema: dict[str, Json]) -> None:
    """Remove the keywords that refuse more where a schema within them, or beside them, accepts more."""
    for keyword in ("not", "if", "contains", "unevaluatedItems", "unevaluatedProperties"):
        schema.pop(keyword, None)
    if isinstance(schema.get("oneOf"), list) and isinstance(schema.get("allOf", []), list):
        schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": schema.pop("oneOf")}]


def _leave_out(schema: dict[str, Json], path: DocumentPath) -> None:
    """Remove the keyword that a path leads to, so that the schema accepts more; do nothing if there is none."""
    keyword, rest = str(path[0]), path[1:]
    value = schema.get(keyword)
    if rest and isinstance(value, dict) and keyword in ONE_SCHEMA:
        return _leave_out(value, rest)
    if rest and isinstance(value, dict | list) and keyword in (SCHEMA_MAPS | SCHEMA_LISTS):
        member: Json = value.get(rest[0]) if isinstance(value, dict) else value[int(rest[0])]
        if len(rest) > 1 and isinstance(member, dict):
            return _leave_out(member, rest[1:])
        if isinstance(value, dict) and keyword != "patternProperties":
            value[str(rest[0])] = True  # without an entry, `additionalProperties` would apply to it
            return None
    for each in (keyword, *_RESTRICTED_BY.get(keyword, ())):
        schema.pop(each, None)
    return None


def _compiled(schema: JsonObject, *, is_foreign: bool = False) -> Validator | list[SchemaError]:
    copy = plain(schema)
    if isinstance(copy, SchemaError):
        return [copy]
    # Cached by its text: compared as Python values, 1, 1.0 and true would be one schema.
    shape = _shape(orjson.dumps(rewritten(copy, _drop_free_text)), is_foreign=is_foreign)
    if isinstance(shape, SchemaShape):
        return Validator(copy, shape)
    problems = check_schema(copy)  # whose words may quote the free text
    return problems if isinstance(problems, list) else shape


def _drop_free_text(schema: dict[str, Json]) -> None:
    for keyword in _FREE_TEXT:
        # Any other type stays, so that the metaschema refuses it.
        if isinstance(schema.get(keyword), str):
            del schema[keyword]


@lru_cache(maxsize=1024)
def _shape(data: bytes, *, is_foreign: bool) -> SchemaShape | list[SchemaError]:
    schema: dict[str, Json] = orjson.loads(data)
    cost, dialect = check_schema(schema), dialect_of(schema)
    if not isinstance(cost, ValidationCost):
        return cost
    assert dialect is not None  # noqa: S101 - which would be a problem
    try:
        engine = DIALECTS[dialect](
            guarded(schema, cost, accepts_longer=is_foreign),
            formats=_FORMATS,
            validate_formats=True,
            pattern_options=PATTERN_OPTIONS,
            offline=True,
        )
    except ValueError as error:  # a rule of the engine that ours do not know
        return [SchemaError(path=(), message=str(error).partition("\n")[0])]
    return SchemaShape(schema=schema, engine=engine, cost=cost, is_foreign=is_foreign)


def _anything(_text: str) -> bool:
    return True


_NOT_ASSERTED: Final = (
    "duration", "hostname", "idn-email", "idn-hostname", "iri", "iri-reference", "json-pointer", "regex",
    "relative-json-pointer", "uri-reference", "uri-template",
)  # fmt: skip
_FORMATS: Final[dict[str, Callable[..., bool]]] = {
    **dict.fromkeys(_NOT_ASSERTED, _anything),
    # draft-07 does not know this one
    "uuid": jsonschema_rs.Draft202012Validator({"format": "uuid"}, validate_formats=True).is_valid,
}

_ANYTHING: Final = SchemaShape(schema={}, engine=jsonschema_rs.Draft202012Validator({}), cost=ValidationCost())


def _has_more_nodes(value: Json, *, than: int) -> bool:
    waiting, seen = [value], 0
    while waiting and seen <= than:
        node = waiting.pop()
        seen += 1
        if isinstance(node, dict):
            # No more than decide it: a list of a million items is not copied to be counted.
            waiting.extend(islice(node.values(), than))
        elif isinstance(node, list):
            waiting.extend(islice(node, than))
    return seen > than or bool(waiting)


def _cut_down(value: Json, path: DocumentPath, cut: set[DocumentPath], depth: int) -> Json:
    """Keep the beginning of each list and object; `cut` takes the places where something was left out."""
    if not isinstance(value, dict | list):
        return value
    kept = 0 if len(path) >= depth else _KEPT_ITEMS
    if len(value) > kept:
        cut.add(path)
    if isinstance(value, dict):
        return {name: _cut_down(value[name], (*path, name), cut, depth) for name in islice(value, kept)}
    return [_cut_down(item, (*path, index), cut, depth) for index, item in enumerate(value[:kept])]


def _has(value: Json, path: DocumentPath) -> bool:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True
