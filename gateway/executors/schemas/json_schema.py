"""A JSON Schema, compiled once and used for each call: quick where the value fits, talkative where it does not.

Why jsonschema-rs: validation costs about a microsecond, patterns run in linear time or under a backtracking limit, and
formats are asserted. Those asserted are the eight that CONFIG names, in every dialect.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import jsonschema_rs

from gateway.config.problems import Problems
from gateway.executors.schemas.effort import Effort, guarded
from gateway.executors.schemas.errors import Path, SchemaError, describe
from gateway.executors.schemas.rules import (
    PATTERN_OPTIONS,
    Flaw,
    SchemaPath,
    dialect_of,
    examined,
    is_deeper,
    plain,
)
from gateway.json_types import Json, JsonObject

__all__ = ["SchemaError", "Validator", "compile_schema", "flaw_in", "validation_errors"]

MAX_ERRORS: Final = 10

_MAX_NODES: Final = 1000
"""Values of more nodes are cut before errors are looked for: the engine collects all of them, with a message each."""
_KEPT_ITEMS: Final = 16
_KEPT_DEPTH: Final = 4


class Validator:
    """Validates values against one schema."""

    def __init__(self, schema: JsonObject, engine: jsonschema_rs.Validator, effort: Effort) -> None:
        self.schema = schema
        self.is_valid: Callable[[Json], bool] = engine.is_valid
        self._engine = engine
        self._effort = effort
        if not effort.is_light:
            self.is_valid = self._is_valid_and_no_excess

    def errors(self, instance: Json, *, noun: str = "member") -> list[SchemaError]:
        """Return why `instance` does not fit, the first few reasons; nothing if it fits.

        `noun` is what a member of the outermost object is called: `argument`.
        """
        if (excess := self._effort.excess(instance)) is not None:
            return [SchemaError(path=(), message=excess)]
        if self._engine.is_valid(instance):
            return []
        if self._is_too_large_for_words(instance):
            return self._errors_of_large(instance, noun=noun)
        return list(islice(self._described(instance, noun=noun), MAX_ERRORS))

    def findings(self, instance: Json) -> list[jsonschema_rs.ValidationError]:
        """Return the engine's own findings, for who wants to mend the value; nothing for a large one."""
        if self._is_too_large_for_words(instance) or self._effort.excess(instance) is not None:
            return []
        return list(self._engine.iter_errors(instance))

    def _is_valid_and_no_excess(self, instance: Json) -> bool:
        return self._effort.excess(instance) is None and self._engine.is_valid(instance)

    def _is_too_large_for_words(self, instance: Json) -> bool:
        if _has_more_nodes(instance, than=min(_MAX_NODES, self._effort.worded_nodes)):
            return True
        depth = self._effort.worded_depth
        return depth is not None and is_deeper(instance, than=depth)

    def _described(self, instance: Json, *, noun: str) -> Iterator[SchemaError]:
        said = set()
        for finding in self._engine.iter_errors(instance):
            for error in describe(finding, self.schema, noun=noun):
                if str(error) not in said:
                    said.add(str(error))
                    yield error

    def _errors_of_large(self, instance: Json, *, noun: str) -> list[SchemaError]:
        cut: set[Path] = set()
        depth = min(_KEPT_DEPTH, self._effort.worded_depth or _KEPT_DEPTH)
        described = self._described(_cut_down(instance, (), cut, depth), noun=noun)
        errors = list(islice((error for error in described if error.path not in cut), MAX_ERRORS))
        return errors or [SchemaError(path=(), message="does not fit the schema, and is too large to say where")]


def compile_schema(
    schema: JsonObject,
    problems: Problems,
    *,
    what: str = "schema",
    place: Callable[[SchemaPath], SchemaPath] = lambda path: path,
) -> Validator:
    """Check `schema` and make it ready. Where it is broken, report each flaw and return a stand-in that takes anything.

    `place` maps a path in the schema to where that was written, below `problems`.
    """
    compiled = _compiled(schema)
    if isinstance(compiled, Validator):
        return compiled
    for flaw in compiled:
        problems.at(*place(flaw.path)).error(f"not a valid {what}: {flaw.message}")
    return Validator({}, jsonschema_rs.Draft202012Validator({}), Effort())


def validation_errors(schema: JsonObject, instance: Json) -> list[SchemaError]:
    """Why `instance` does not fit a schema that somebody wrote while running; a broken schema fits nothing."""
    compiled = _compiled(schema)
    if isinstance(compiled, Validator):
        return compiled.errors(instance)
    return [SchemaError(path=(), message=f"the schema is broken: {flaw.message}") for flaw in compiled]


def flaw_in(schema: JsonObject) -> str | None:
    """Why a schema that somebody wrote while running is broken; None if it is not."""
    compiled = _compiled(schema)
    return None if isinstance(compiled, Validator) else next((flaw.message for flaw in compiled), "unknown dialect")


def _compiled(schema: JsonObject) -> Validator | list[Flaw]:
    copy = plain(schema)
    if isinstance(copy, Flaw):
        return [copy]
    effort, dialect = examined(copy), dialect_of(copy)
    if not isinstance(effort, Effort) or dialect is None:
        return effort if isinstance(effort, list) else []
    try:
        engine = _engine(guarded(copy, effort) if effort.costly else copy, dialect.validator)
        return Validator(copy, engine, effort)
    except ValueError as error:  # a rule of the engine that ours do not know
        return [Flaw(path=(), message=str(error).partition("\n")[0])]


def _engine(schema: JsonObject, validator: type[jsonschema_rs.Validator]) -> jsonschema_rs.Validator:
    return validator(
        dict(schema),
        formats=_FORMATS,
        validate_formats=True,
        pattern_options=PATTERN_OPTIONS,
        offline=True,
    )


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


def _cut_down(value: Json, path: Path, cut: set[Path], depth: int) -> Json:
    """Keep the beginning of each list and object; `cut` takes the places where something was left out."""
    if not isinstance(value, dict | list):
        return value
    kept = 0 if len(path) >= depth else _KEPT_ITEMS
    if len(value) > kept:
        cut.add(path)
    if isinstance(value, dict):
        return {name: _cut_down(value[name], (*path, name), cut, depth) for name in islice(value, kept)}
    return [_cut_down(item, (*path, index), cut, depth) for index, item in enumerate(value[:kept])]
