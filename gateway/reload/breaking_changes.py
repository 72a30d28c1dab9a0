"""Finds changes that can break clients: removed names, stricter inputs and missing output fields."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from gateway.catalog.manifest import Contract, Manifest
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.language.schemas.keywords import properties_of, referenced, rewritten

_MOST: Final = 20
"""Maximum number of reported changes per schema. Also the maximum number of consecutive references to resolve."""
_NOTES: Final = ("$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly")
_LOWER_BOUNDS: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_OTHERS: Final = (
    *("pattern", "multipleOf", "uniqueItems", "format", "not", "if", "then", "else", "contains", "prefixItems"),
    *("propertyNames", "patternProperties", "dependentRequired", "dependentSchemas", "allOf", "anyOf", "oneOf"),
)
"""Keywords that are not compared in detail. A new or different value counts as stricter."""
_TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


BreakingChange = tuple[str, str]
"""The name of the primitive, such as `tools.deploy`, and what changed."""


_Reason = tuple[str, str]
"""The path of a field, such as `.filter.sizes[]` ("" for the whole schema), and a message. `{}` stands for the field.
"""


def breaking_changes(old: Manifest, new: Manifest) -> tuple[BreakingChange, ...]:
    """Return the breaking changes between two manifests. Audiences that exist in only one manifest are ignored."""
    offered = new.contracts or {}
    return tuple(
        (place, what)
        for place, before in (old.contracts or {}).items()
        for what in dict.fromkeys(_reasons(before, offered.get(place), new.audiences))
    )


def _reasons(before: Contract, after: Contract | None, audiences: Iterable[str]) -> Iterator[str]:
    if after is None:
        yield "removed"
        return
    lost = [name for name in before.audiences if name in audiences and name not in after.audiences]
    if lost:
        yield f"no longer available to {', '.join(lost)}"
    yield from _compared(before.input, after.input, is_input=True)
    if before.output is not None and after.output is None:
        yield "no longer has an output schema"
    elif before.output is not None:
        yield from _compared(before.output, after.output, is_input=False)


def _compared(old: Json, new: Json, *, is_input: bool) -> Iterator[str]:
    field, whole = ("", "the input") if is_input else ("output field ", "the output")
    comparison = _Comparison(rewritten(old, _drop_notes), rewritten(new, _drop_notes), is_input=is_input)
    for path, text in islice(comparison.reasons(), _MOST):
        yield text.replace("{}", f"{field}`{path.removeprefix('.')}`" if path else whole, 1)


class _Comparison:
    """Compares two versions of the schema of an input or output."""

    def __init__(self, old: Json, new: Json, *, is_input: bool) -> None:
        self._old: Final = old
        self._new: Final = new
        self._is_input: Final = is_input
        self._seen: Final[set[str]] = set()
        """Pairs of schemas with references that have been compared. A schema can refer to itself."""

    def reasons(self) -> Iterator[_Reason]:
        return self._between("", self._old, self._new)

    def _between(self, path: str, old: Json, new: Json) -> Iterator[_Reason]:
        if _is_reference(old) or _is_reference(new):
            pair = json.dumps([old, new])
            if pair in self._seen:
                return
            self._seen.add(pair)
        before, after = _resolved(old, self._old), _resolved(new, self._new)
        for inner, text in self._stricter(before, after) if self._is_input else self._missing(before, after):
            yield path + inner, text

    def _stricter(self, before: JsonObject, after: JsonObject) -> Iterator[_Reason]:
        yield from self._changed_type(_types(before), _types(after))
        yield from _fewer_values(_values(before), _values(after))
        yield from _other_limits(before, after)
        olds, news = properties_of(before), properties_of(after)
        for name in after.get("required", ()):
            if name not in before.get("required", ()):
                yield (f".{name}", "{} is now required" if name in olds else "{} is a new required input")
        is_closed = after.get("additionalProperties") is False
        for name, old in olds.items():
            if name in news:
                yield from self._between(f".{name}", old, news[name])
            elif is_closed:
                yield (f".{name}", "{} is no longer accepted")
        if is_closed and before.get("additionalProperties") is not False:
            yield ("", "{} no longer accepts undeclared names")
        if "items" in after:
            yield from self._between("[]", before.get("items", True), after["items"])

    def _missing(self, before: JsonObject, after: JsonObject) -> Iterator[_Reason]:
        yield from self._changed_type(_types(before), _types(after))
        news, required = properties_of(after), after.get("required", ())
        for name, old in properties_of(before).items():
            if name not in news:
                yield (f".{name}", "{} is gone")
                continue
            if name in before.get("required", ()) and name not in required:
                yield (f".{name}", "{} can be missing")
            yield from self._between(f".{name}", old, news[name])
        if "items" in before:
            yield from self._between("[]", before["items"], after.get("items", True))

    def _changed_type(self, olds: frozenset[str] | None, news: frozenset[str] | None) -> Iterator[_Reason]:
        """Compare the allowed types. None means any type."""
        if olds is not None and news is not None:
            if olds - news if self._is_input else news - olds:
                yield ("", f"the type of {{}} changed from {_listed(olds)} to {_listed(news)}")
        elif news is not None and self._is_input:
            yield ("", f"{{}} must now be of type {_listed(news)}")
        elif olds is not None and not self._is_input:
            yield ("", f"{{}} can have any type, not only {_listed(olds)}")


def _fewer_values(olds: Sequence[Json] | None, news: Sequence[Json] | None) -> Iterator[_Reason]:
    """Compare the allowed values. None means any value."""
    if news is None:
        return
    if olds is None:
        yield ("", f"{{}} accepts only {_quoted(news)}")
    elif lost := [value for value in olds if value not in news]:
        yield ("", f"{{}} no longer accepts {_quoted(lost)}")


def _other_limits(before: JsonObject, after: JsonObject) -> Iterator[_Reason]:
    for keyword in (*_LOWER_BOUNDS, *_UPPER_BOUNDS):
        old, new = before.get(keyword), after.get(keyword)
        if not isinstance(new, int | float) or new == old:
            continue
        if not isinstance(old, int | float):
            yield ("", f"{{}} has a new `{keyword}`: {new}")
        elif (new > old) is (keyword in _LOWER_BOUNDS):
            yield ("", f"{{}} has a stricter `{keyword}`: {new} instead of {old}")
    for keyword in _OTHERS:
        if keyword in after and after[keyword] != before.get(keyword, ABSENT):
            yield ("", f"{{}} has a {'different' if keyword in before else 'new'} `{keyword}`")


def _types(schema: JsonObject) -> frozenset[str] | None:
    written = schema.get("type")
    if written is None:
        values = _values(schema)
        return None if values is None else frozenset(_TYPES.get(type(value), "null") for value in values)
    types = frozenset(written if isinstance(written, list) else [str(written)])
    return types | {"integer"} if "number" in types else types


def _listed(types: frozenset[str]) -> str:
    return " or ".join(sorted(types - {"integer"} if "number" in types else types))


def _values(schema: JsonObject) -> Sequence[Json] | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values if isinstance(values, list) else None


def _quoted(values: Sequence[Json]) -> str:
    return ", ".join(json.dumps(value, ensure_ascii=False) for value in values)


def _drop_notes(schema: dict[str, Json]) -> None:
    for keyword in _NOTES:
        schema.pop(keyword, None)


def _is_reference(schema: Json) -> bool:
    return isinstance(schema, dict) and "$ref" in schema


def _resolved(schema: Json, root: Json) -> JsonObject:
    found: JsonObject = schema if isinstance(schema, dict) else {"not": {}} if schema is False else {}
    for _ in range(_MOST):
        if "$ref" not in found:
            break
        target = referenced(root, found["$ref"])
        beside = {key: value for key, value in found.items() if key != "$ref"}
        found = {**(target if isinstance(target, dict) else {}), **beside}
    return found
