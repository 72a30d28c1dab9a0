"""Small OpenAPI documents for tests, their definitions and requests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from gateway.catalog.catalog import Catalog
from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.plugins import Plugins
from gateway.cli.commands.import_openapi import as_yaml, imported_from
from gateway.config.definition_source import load_definitions
from gateway.config.models.backends import Connection
from gateway.config.models.openapi import OpenApi
from gateway.executors.http.executor import HttpExecutor
from gateway.executors.shared_services import Services
from gateway.json_types import Json
from gateway.net.request import Request
from gateway.openapi.definitions import DocumentDefinitions, definitions_of
from gateway.openapi.document import LocalDocuments, References
from gateway.openapi.source import OpenApiSource
from tests.executors.recording import make_invocation

BASE_URL: Final = "https://shop.example.com/v1"
ALL_METHODS: Final = ["get", "head", "post", "put", "patch", "delete", "options"]


def document(paths: Mapping[str, Json], *, openapi: str = "3.1.0", **root: Json) -> dict[str, Json]:
    return {"openapi": openapi, "info": {"title": "A shop", "version": "1"}, "paths": dict(paths), **root}


def operation(**members: Json) -> dict[str, Json]:
    return {"responses": {"200": {"description": "It worked."}}, **members}


def offer(
    given: Json, directory: Path, *, connection: Json = None, is_connected: bool = True, **entry: Json
) -> DocumentDefinitions:
    """The definitions of a document for an entry `shop`, by default with every method."""
    path = directory / "shop.openapi.json"
    path.write_bytes(orjson.dumps(given))
    fields = {"document": str(path), "include": {"methods": ALL_METHODS}, **entry}
    made = None
    if is_connected:
        fields["connection"] = "shop"
        made = Connection.model_validate({"base_url": BASE_URL, **(connection or {})})
    documents = LocalDocuments(path)
    references = References(documents.open)
    return definitions_of(
        documents.uri,
        references,
        name="shop",
        config=OpenApi.model_validate(fields),
        connection=made,
    )


def inputs_of(data: Mapping[str, Json]) -> dict[str, Any]:
    """The input schemas of a tool in both forms."""
    found: dict[str, Any] = data.get("input") or data.get("input_schema", {}).get("properties", {})
    return found


def config_of(given: Json, directory: Path, **entry: Json) -> Path:
    """A configuration and its document."""
    (directory / "shop.openapi.json").write_bytes(orjson.dumps(given))
    fields = {"document": "shop.openapi.json", "connection": "shop", "include": {"methods": ALL_METHODS}, **entry}
    config = directory / "config.yaml"
    config.write_bytes(orjson.dumps({"connections": {"shop": {"base_url": BASE_URL}}, "openapi": {"shop": fields}}))
    return config


def write_both_ways(path: Path, directory: Path) -> tuple[Path, Path]:
    """Two configurations with all tools of a document: with `openapi:`, and from `import`."""
    entry: Json = {
        "document": str(path),
        "connection": "c",
        "ignore_security": True,
        "include": {"methods": ALL_METHODS},
    }
    connections = {"c": {"base_url": BASE_URL}}
    served, written = directory / "config.yaml", directory / "written.yaml"
    served.write_bytes(orjson.dumps({"connections": connections, "openapi": {"c": entry}}))
    documents = LocalDocuments(path)
    include = [f"method:{method}" for method in ALL_METHODS]
    sections, _ = imported_from(documents.open, documents.uri, include=include, connection="c")
    written.write_text(as_yaml({"connections": connections, **sections}))
    return served, written


def compiled(config: Path, services: Services) -> Catalog:
    """The catalog of a file.

    Raises:
        ConfigError: it has errors.
    """
    plugins = Plugins()
    try:
        loaded = load_definitions(config, [OpenApiSource()])
        return compile_catalog(loaded, services=services, plugins=plugins, generation=1)
    finally:
        plugins.close()


def request_of(catalog: Catalog, tool: str, arguments: Mapping[str, Json]) -> Request:
    """The request that a call of a tool sends.

    Raises:
        ExecutionError: the arguments are invalid, or cannot be sent.
    """
    found = catalog.tools[tool]
    assert isinstance(found.executor, HttpExecutor)
    return found.executor.request.render(make_invocation(found.arguments.prepare(dict(arguments))))
