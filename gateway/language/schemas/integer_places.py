"""Converts whole floats to integers where a schema has integers.

3.0 is an integer in JSON Schema (Validation §6.1.1), and some clients send it. Backends expect 3.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import orjson

from gateway.json_types import Json, JsonObject
from gateway.language.schemas.keywords import referenced

EXACT_INTEGERS: Final = 2.0**53
"""Floats up to this value represent every integer exactly."""
_MAX_PLACES: Final = 1000
"""A place is a set of schemas that apply to the same value, so their number can grow exponentially."""
_BRANCHES: Final = ("allOf", "anyOf", "oneOf", "then", "else")


class IntegerPlaces(msgspec.Struct, eq=False):
    """The places of integers in values of a schema. For recursive schemas, a place can contain itself."""

    is_integer: bool = False
    members: dict[str, "IntegerPlaces"] = {}
    other_members: "IntegerPlaces | None" = None
    items: "IntegerPlaces | None" = None

    def read(self, value: Json) -> Json:
        """Return a copy of a valid value with whole floats up to `EXACT_INTEGERS` converted."""
        match value:
            case float() if self.is_integer and value.is_integer() and abs(value) <= EXACT_INTEGERS:
                return int(value)
            case dict() if self.members or self.other_members is not None:
                found = {name: self.members.get(name, self.other_members) for name in self._names(value)}
                return {**value, **{name: place.read(value[name]) for name, place in found.items() if place}}
            case list() if self.items is not None:
                return [self.items.read(item) for item in value]
            case _:
                return value

    def fill(
        self,
        members: dict[str, "IntegerPlaces"],
        *,
        other_members: "IntegerPlaces | None",
        items: "IntegerPlaces | None",
    ) -> None:
        self.members, self.other_members, self.items = members, other_members, items

    def keep(self, kept: "set[IntegerPlaces]") -> None:
        self.other_members = self.other_members if self.other_members in kept else None
        self.members = {
            name: member if member in kept else _NOWHERE
            for name, member in self.members.items()
            if member in kept or self.other_members  # `_NOWHERE` excludes a named member from `other_members`
        }
        self.items = self.items if self.items in kept else None

    def _names(self, value: dict[str, Json]) -> Iterable[str]:
        return value if self.other_members is not None else self.members.keys() & value.keys()

    @property
    def parts(self) -> Iterator["IntegerPlaces"]:
        yield from self.members.values()
        yield from (each for each in (self.other_members, self.items) if each is not None)


_NOWHERE: Final = IntegerPlaces()


def integers_of(schema: JsonObject) -> IntegerPlaces | None:
    if b'"integer"' not in orjson.dumps(schema):
        return None
    places = _Places(schema)
    root = places.at([schema])
    places.fill()
    return root if root is not None and root in places.with_integers() else None


class _Places:
    def __init__(self, root: JsonObject) -> None:
        self._root: Final = root
        self._known: Final[dict[frozenset[int], IntegerPlaces]] = {}
        self._unfilled: Final[list[tuple[IntegerPlaces, list[JsonObject]]]] = []

    def at(self, schemas: Iterable[Json]) -> IntegerPlaces | None:
        together = self._together(schemas)
        if not together:
            return None
        key = frozenset(map(id, together))
        if key not in self._known:
            if len(self._known) == _MAX_PLACES:
                return None
            self._known[key] = IntegerPlaces(is_integer=any(_says_integer(each) for each in together))
            self._unfilled.append((self._known[key], together))
        return self._known[key]

    def fill(self) -> None:
        while self._unfilled:
            place, together = self._unfilled.pop()
            members: dict[str, list[Json]] = {}
            for each in together:
                properties = each.get("properties")
                for name, member in properties.items() if isinstance(properties, dict) else ():
                    members.setdefault(name, []).append(member)
            found = {name: self.at(schemas) for name, schemas in members.items()}
            # Members that match a pattern are not subject to `additionalProperties`.
            has_patterns = any("patternProperties" in each for each in together)
            others = () if has_patterns else [each.get("additionalProperties") for each in together]
            place.fill(
                {name: member or _NOWHERE for name, member in found.items()},
                other_members=self.at(others),
                items=self.at(item for each in together for item in _items(each)),
            )

    def with_integers(self) -> set[IntegerPlaces]:
        """Return the places that contain integers, and remove all others from them."""
        kept = {place for place in self._known.values() if place.is_integer}
        while more := {
            place for place in self._known.values() if place not in kept and not kept.isdisjoint(place.parts)
        }:
            kept |= more
        for place in kept:
            place.keep(kept)
        return kept

    def _together(self, schemas: Iterable[Json]) -> list[JsonObject]:
        """Return the schemas and all schemas that they apply to the same value."""
        found: dict[int, JsonObject] = {}
        waiting = [*schemas]
        while waiting:
            schema = waiting.pop()
            if not isinstance(schema, dict) or id(schema) in found:
                continue
            found[id(schema)] = schema
            for keyword in _BRANCHES:
                branches = schema.get(keyword)
                waiting += branches if isinstance(branches, list) else [branches]
            # Only follows JSON Pointers. Other references are rare.
            waiting.append(referenced(self._root, schema.get("$ref")))
        return list(found.values())


def _says_integer(schema: JsonObject) -> bool:
    said = schema.get("type")
    return "integer" in said if isinstance(said, list) else said == "integer"


def _items(schema: JsonObject) -> Iterator[Json]:
    for keyword in ("items", "prefixItems"):
        items = schema.get(keyword)
        yield from items if isinstance(items, list) else [items]
