"""Renders the configuration reference as Markdown from the JSON Schema."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import orjson

from gateway.config.models.base import INTERPOLATION_SCHEMA
from gateway.config.schema import document_schema
from gateway.json_types import Json, JsonObject

_SECTION_OF: Final = "#/$defs/"


def keys_reference() -> str:
    """Return one section per kind of mapping, in order of first use."""
    schema = document_schema()
    blocks = ["## The file\n", _table(schema["properties"], required=())]
    for name in _reached(schema):
        definition = schema["$defs"][name]
        about = f"{definition['description']}\n" if definition.get("description") else ""
        blocks += [f"## {name}\n", about, _table(definition.get("properties", {}), definition.get("required", ()))]
    return "\n".join(block for block in blocks if block)


def _reached(schema: JsonObject) -> list[str]:
    """Return the definitions in order of first use."""
    seen: dict[str, None] = {}
    waiting = list(_references(schema["properties"]))
    while waiting:
        name = waiting.pop(0)
        if name not in seen:
            seen[name] = None
            waiting += _references(schema["$defs"][name])
    return list(seen)


def _references(value: Json) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(target := value.get("$ref"), str):
            yield target.removeprefix(_SECTION_OF)
        for member in value.values():
            yield from _references(member)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _table(properties: JsonObject, required: Json) -> str:
    rows = [
        (f"`{name}`", _type_of(field), _default_of(name, field, required), field.get("description", ""))
        for name, field in properties.items()
    ]
    return markdown_table(("key", "value", "default", "meaning"), rows)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), ""])


def _default_of(name: str, field: JsonObject, required: Json) -> str:
    if name in required:
        return "*required*"
    return f"`{orjson.dumps(field['default']).decode()}`" if "default" in field else ""


def _type_of(field: JsonObject) -> str:
    if "$ref" in field:
        name = field["$ref"].removeprefix(_SECTION_OF)
        return f"[{name}](#{name.lower()})"
    for alternatives in ("anyOf", "oneOf"):
        if alternatives in field:
            words = [_type_of(each) for each in field[alternatives] if each != INTERPOLATION_SCHEMA]
            return " or ".join(dict.fromkeys(word for word in words if word != "null"))
    if "enum" in field or "const" in field:
        return " or ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    return _plain_type_of(field)


def _plain_type_of(field: JsonObject) -> str:
    kind = field.get("type", "any value")
    if isinstance(kind, list):
        return " or ".join(word for word in kind if word != "null")
    if kind == "array":
        return f"list of {_type_of(field['items'])}" if field.get("items") else "list"
    members = field.get("additionalProperties")
    if kind == "object" and isinstance(members, Mapping) and members:
        return f"map of {_type_of(members)}"
    return "map" if kind == "object" else str(kind)
