"""Inserts the defaults of a schema."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import orjson

from gateway.json_types import Json, JsonObject


class SchemaDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of the members of an object, and of nested objects."""

    values: Mapping[str, bytes]
    """As JSON, so that calls do not share lists."""
    nested: Mapping[str, "SchemaDefaults"]

    def fill(self, given: JsonObject) -> dict[str, Json]:
        """Return a copy of `given` with the missing defaults."""
        filled = dict(given)
        if not self.values and not self.nested:  # as with most tools
            return filled
        for name, value in self.values.items():
            if name not in filled:
                filled[name] = orjson.loads(value)
        for name, defaults in self.nested.items():
            # After the defaults above, which can be objects with missing members.
            if isinstance(inner := filled.get(name), dict):
                filled[name] = defaults.fill(inner)
        return filled

    def paths(self) -> Iterator[tuple[str, ...]]:
        yield from ((name,) for name in self.values)
        for name, defaults in self.nested.items():
            yield from ((name, *path) for path in defaults.paths())

    def at(self, path: tuple[str, ...]) -> Json:
        """Return the default at `path`, wrapped in objects like an argument."""
        first, *rest = path
        return {first: self.nested[first].at(tuple(rest)) if rest else orjson.loads(self.values[first])}


NO_DEFAULTS: Final = SchemaDefaults(values={}, nested={})


def defaults_of(schema: JsonObject) -> SchemaDefaults:
    """Return the defaults under `properties`. Defaults in a `$ref` or an alternative are not used."""
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
    """Copy the output of orjson, whose buffer is larger than its content."""
    return bytes(memoryview(orjson.dumps(value)))
