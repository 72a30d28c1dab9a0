"""Fills in the defaults of a schema."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import orjson

from gateway.json_types import Json, JsonObject


class SchemaDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults of an object's members, and of those of the objects in it."""

    values: Mapping[str, bytes]
    """As JSON, so that no two calls share a list."""
    nested: Mapping[str, "SchemaDefaults"]

    def fill(self, given: JsonObject) -> dict[str, Json]:
        """Return a copy of `given` with what is missing."""
        filled = dict(given)
        if not self.values and not self.nested:  # as with most tools
            return filled
        for name, value in self.values.items():
            if name not in filled:
                filled[name] = orjson.loads(value)
        for name, defaults in self.nested.items():
            # After the defaults above: one of them may be an object that lacks members of its own.
            if isinstance(inner := filled.get(name), dict):
                filled[name] = defaults.fill(inner)
        return filled

    def paths(self) -> Iterator[tuple[str, ...]]:
        yield from ((name,) for name in self.values)
        for name, defaults in self.nested.items():
            yield from ((name, *path) for path in defaults.paths())

    def at(self, path: tuple[str, ...]) -> Json:
        """The default at `path`, wrapped in objects as an argument there would be."""
        first, *rest = path
        return {first: self.nested[first].at(tuple(rest)) if rest else orjson.loads(self.values[first])}


NO_DEFAULTS: Final = SchemaDefaults(values={}, nested={})


def defaults_of(schema: JsonObject) -> SchemaDefaults:
    """Collect the defaults that stand under `properties`; those behind a `$ref` or an alternative are not filled in."""
    properties = schema.get("properties")
    members = {
        name: member
        for name, member in (properties.items() if isinstance(properties, dict) else ())
        if isinstance(member, dict)
    }
    nested = {name: defaults_of(member) for name, member in members.items()}
    return SchemaDefaults(
        values={name: _encoded(member["default"]) for name, member in members.items() if "default" in member},
        nested={name: defaults for name, defaults in nested.items() if defaults.values or defaults.nested},
    )


def _encoded(value: Json) -> bytes:
    """A copy of what orjson writes, which holds on to kilobytes more than it has in it."""
    return bytes(memoryview(orjson.dumps(value)))
