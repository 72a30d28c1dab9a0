"""Finds changes that can break clients: removed names, stricter inputs and missing output fields."""

import json
from collections.abc import Iterable, Iterator, Sequence
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
    *("propertyNames", "patternProperties", "dependentRequired", "dependentSchemas"),
)
"""Keywords that are not compared in detail. A new or different value counts as stricter."""
_CHOICES: Final = ("anyOf", "oneOf")
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
    for path, text in _Comparison(old, new, is_input=is_input).reasons():
        yield text.replace("{}", f"{field}`{path.removeprefix('.')}`" if path else whole, 1)


class _Comparison:
    """Compares two versions of the schema of an input or output."""

    def __init__(self, old: Json, new: Json, *, is_input: bool) -> None:
        self._old: Final = rewritten(old, _drop_notes)
        self._new: Final = rewritten(new, _drop_notes)
        self._is_input: Final = is_input
        self._found: Final[dict[str, list[_Reason]]] = {}

    def reasons(self) -> Sequence[_Reason]:
        return [] if self._old == self._new else self._between("", self._old, self._new)

    def _between(self, path: str, old: Json, new: Json) -> list[_Reason]:
        key = json.dumps([old, new])
        if key not in self._found:
            self._found[key] = []  # ends the recursion for a schema that refers to itself
            before, after = _resolved(old, self._old), _resolved(new, self._new)
            if before.keys().isdisjoint(_CHOICES) and after.keys().isdisjoint(_CHOICES):
                reasons = self._stricter(before, after) if self._is_input else self._missing(before, after)
            else:
                reasons = self._of_choices(_choices(before, self._old), _choices(after, self._new))
            self._found[key] = list(dict.fromkeys(reasons))[:_MOST]
        return [(path + inner, text) for inner, text in self._found[key]]

    def _of_choices(self, olds: Sequence[JsonObject], news: Sequence[JsonObject]) -> Iterator[_Reason]:
        """Match each old alternative of an input, or each new one of an output, with the most similar alternative.

        A schema without `anyOf` and `oneOf` counts as one alternative.
        """
        for each in olds if self._is_input else news:
            pairs = [(each, new) for new in news] if self._is_input else [(old, each) for old in olds]
            yield from min((self._between("", *pair) for pair in pairs), key=len, default=[])

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


def _resolved(schema: Json, root: Json) -> JsonObject:
    found: JsonObject = schema if isinstance(schema, dict) else {"not": {}} if schema is False else {}
    for _ in range(_MOST):
        if "$ref" in found:
            parts = [referenced(root, found["$ref"])]
        elif isinstance(found.get("allOf"), list):
            parts = found["allOf"]
        else:
            break
        found = {key: value for key, value in found.items() if key != ("$ref" if "$ref" in found else "allOf")}
        for part in parts:
            found = _merged(found, part)
    return found


def _choices(schema: JsonObject, root: Json) -> Sequence[JsonObject]:
    key = next((key for key in _CHOICES if isinstance(schema.get(key), list)), None)
    if key is None:
        return [schema]
    rest = {name: value for name, value in schema.items() if name != key}
    return [_merged(rest, _resolved(each, root)) for each in schema[key]]


def _merged(schema: JsonObject, other: Json) -> JsonObject:
    if not isinstance(other, dict):
        return schema
    both = {
        "properties": {**properties_of(schema), **properties_of(other)},
        "required": [*schema.get("required", ()), *other.get("required", ())],
    }
    return {**schema, **other, **{key: value for key, value in both.items() if value}}
