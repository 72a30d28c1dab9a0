"""Checks the schemas of tools with a second validator (jsonschema). For `validate` alone, because it is slow.

Why: jsonschema-rs decides here, but clients validate with libraries of their own, and a schema that two libraries read
differently will not work with all of them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import orjson

from gateway.catalog.catalog import Catalog
from gateway.errors import Problem, Severity
from gateway.json_types import Json, JsonObject

_FREE_TEXT: Final = frozenset({"$comment", "description", "title"})
"""Keys of free text: schemas that differ in it alone are equally valid."""


def cross_check_schemas(catalog: Catalog) -> Iterator[Problem]:
    """Warnings for schemas that jsonschema refuses."""
    accepted: set[tuple[Json, bytes]] = set()
    for tool in catalog.tools.values():
        for member, key in (("inputSchema", "input"), ("outputSchema", "output.schema")):
            schema: JsonObject | None = tool.definition.get(member)
            if schema is not None and (reason := _refusal(dict(schema), accepted)) is not None:
                message = f"another JSON Schema validator (jsonschema) refuses the {member}: {reason}"
                yield Problem(message=message, path=f"tools.{tool.name}.{key}", severity=Severity.WARNING)


def _refusal(schema: dict[str, Json], accepted: set[tuple[Json, bytes]]) -> str | None:
    """Why jsonschema refuses a schema; None if it does not.

    `accepted` takes the metaschema and the JSON of each part that it accepts, without free text: each check takes
    milliseconds.
    """
    import jsonschema  # noqa: PLC0415 - takes longer to import than everything else here takes to run

    dialect = jsonschema.validators.validator_for(schema)

    def refused(part: Json) -> str | None:
        try:
            dialect.check_schema(part)
        except jsonschema.SchemaError as error:
            return str(error.message)
        return None

    def accepts(part: Json) -> bool:
        try:
            key = dialect.META_SCHEMA.get("$schema"), orjson.dumps(_without_text(part), option=orjson.OPT_SORT_KEYS)
        except TypeError:  # a value that JSON has no form for
            return False
        if key not in accepted and refused(part) is None:
            accepted.add(key)
        return key in accepted

    return None if all(map(accepts, _parts(schema))) else refused(schema)


def _parts(schema: dict[str, Json]) -> Iterator[Json]:
    """The schema without its properties, and each property: a metaschema checks them independently."""
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, Mapping):
        are_names = isinstance(required, list) and all(isinstance(name, str) for name in required)
        is_right = required and are_names and len(set(required)) == len(required)
        yield {**schema, "properties": {}, **({"required": ["name"]} if is_right else {})}
        yield from properties.values()
    else:
        yield schema


def _without_text(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {
            key: "" if key in _FREE_TEXT and isinstance(member, str) else _without_text(member)
            for key, member in value.items()
        }
    return [_without_text(item) for item in value] if isinstance(value, list | tuple) else value
