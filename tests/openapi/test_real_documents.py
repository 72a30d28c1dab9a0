"""Real documents: every operation is a tool or reported, and requests match the document."""

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import orjson
import pytest
from openapi_core import Config, OpenAPI
from openapi_core.datatypes import RequestParameters
from werkzeug.datastructures import Headers, ImmutableMultiDict

from gateway.catalog.catalog import Catalog
from gateway.errors import ExecutionError
from gateway.executors.shared_services import Services
from gateway.json_types import Json, JsonObject
from gateway.net.request import Request
from tests.openapi.real_documents import REAL_DOCUMENTS, arguments_for, root_of, shuffled
from tests.openapi.shop_documents import BASE_URL, compiled, config_of, offer, request_of, write_both_ways

pytestmark = pytest.mark.build

_UNCHECKED: Final = Config(spec_validator_cls=None)  # type: ignore[arg-type] # it is how a check is left out


@pytest.mark.parametrize("name", REAL_DOCUMENTS)
async def test_every_operation_is_a_tool_or_named(name: str, tmp_path: Path, services: Services) -> None:
    root = root_of(name)
    catalog = compiled(config_of(root, tmp_path, ignore_security=True), services)
    methods = {"get", "head", "post", "put", "patch", "delete", "options", "trace"}
    operations = sum(method in methods for item in root["paths"].values() for method in item)
    assert len(catalog.tools) + len(catalog.left_out) == operations
    assert len(catalog.tools) > 0.98 * operations
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool) for tool in catalog.tools)


@pytest.mark.parametrize("name", REAL_DOCUMENTS)
def test_names_do_not_depend_on_the_order_of_the_document(name: str, tmp_path: Path) -> None:
    root = root_of(name)
    offered = [
        offer(each, tmp_path, ignore_security=True) for each in (root, shuffled(root, random.Random(f"seed {name}")))
    ]
    first, second = ({each.operation: each.name for each in one.made} for one in offered)
    assert first
    assert first == second


@pytest.mark.parametrize("name", [name for name in REAL_DOCUMENTS if name not in {"github", "openai"}])
async def test_import_and_openapi_send_the_same_requests(name: str, tmp_path: Path, services: Services) -> None:
    path = tmp_path / "shop.openapi.json"
    path.write_bytes(orjson.dumps(root_of(name)))
    served, written = (compiled(each, services) for each in write_both_ways(path, tmp_path))
    assert list(served.tools) == list(written.tools)
    compared = 0
    for tool, primitive in served.tools.items():
        assert primitive.definition == written.tools[tool].definition
        for is_full in (False, True):
            arguments = arguments_for(primitive.definition["inputSchema"], is_full=is_full)
            if arguments is not None:
                one, other = (_outcome(catalog, tool, arguments) for catalog in (served, written))
                assert one == other, tool
                compared += not isinstance(one, str)
    assert compared > len(served.tools) / 2


def _outcome(catalog: Catalog, tool: str, arguments: Mapping[str, Json]) -> object:
    """The request of a call, or the reason why it cannot be sent."""
    try:
        return request_of(catalog, tool, arguments).key
    except ExecutionError as error:
        return str(error)


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
async def test_get_requests_match_the_document(name: str, tmp_path: Path, services: Services) -> None:
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
        OpenAPI.from_dict(_part(root, each.operation.partition(" ")[2]), config=_UNCHECKED).validate_request(request)
        checked += 1
    assert checked > len(made) / 14


def _part(root: JsonObject, path: str) -> dict[str, Json]:
    """The part of a document for one path, because `openapi_core` copies its input."""
    components: dict[str, dict[str, Json]] = {}
    waiting = _references(root["paths"][path])
    while waiting:
        _, kind, name = (reference := waiting.pop()).removeprefix("#").rsplit("/", 2)
        assert reference == f"#/components/{kind}/{name}"
        if name not in components.setdefault(kind, {}):
            components[kind][name] = root["components"][kind][name]
            waiting += _references(components[kind][name])
    given = {"paths": {path: root["paths"][path]}, "components": components}
    return {**root, **given, "servers": [{"url": BASE_URL}], "security": []}


def _references(value: Json) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [each for member in value.values() for each in _references(member)]
    return [each for item in value for each in _references(item)] if isinstance(value, list) else []


def _sample(schema: JsonObject) -> Json:
    """A valid value for a simple schema, else None."""
    if "enum" in schema:
        return schema["enum"][0]
    if "pattern" in schema or "format" in schema or "minLength" in schema:
        return None
    return {"string": "a", "integer": 1, "number": 1, "boolean": True}.get(str(schema.get("type")))
