"""Compiles the `app:` of a tool into a page and the tool's `_meta` (SEP-1865, MCP Apps)."""

from typing import Final
from urllib.parse import quote

from msgspec.structs import replace

from gateway.catalog.compile.context import CompileContext
from gateway.catalog.compile.resources import compile_resource
from gateway.catalog.primitives import Resource, ShapeContents
from gateway.config.diagnostics.problems import Problems
from gateway.config.models import definitions as models
from gateway.config.models.definitions import AppPage
from gateway.json_types import Json, JsonObject

APP_MEDIA_TYPE: Final = "text/html;profile=mcp-app"
_OLD_KEY: Final = "ui/resourceUri"
"""Key of the page URI in `_meta` before version 2026-01-26 of MCP Apps. Old hosts still read this key."""


def app_uri(tool: str, *, server: str) -> str:
    return f"ui://{quote(server, safe='')}/{tool}.html"


def tool_meta(config: AppPage, *, uri: str) -> JsonObject:
    """Return the `_meta` that links a tool to its page (SEP-1865, McpUiToolMeta)."""
    return {"ui": {"resourceUri": uri, "visibility": list(config.visibility)}, _OLD_KEY: uri}


def compile_app(name: str, config: models.Tool, *, problems: Problems, context: CompileContext) -> list[Resource]:
    """Compile the page of a tool with `app`. Callers need the tool's scopes to read the page."""
    if (app := config.app) is None:
        return []
    uri = app_uri(name, server=context.server)
    page = models.Resource(
        uri=uri, file=app.file, mime_type=APP_MEDIA_TYPE, title=config.title, description=config.description
    )
    meta = {"ui": _page_meta(app)}
    return [
        replace(
            resource,
            access=context.access_to("tools", name),
            tags=tuple(config.tags),
            contents=_with_meta(resource.contents, meta),
            definition={**resource.definition, "name": name, "_meta": meta},
        )
        for resource in compile_resource(uri, page, problems=problems, context=context)
        if isinstance(resource, Resource)  # the URI has no variables, so there is no template
    ]


def _with_meta(contents: ShapeContents, meta: JsonObject) -> ShapeContents:
    """Add `_meta` to the page's contents, because hosts prefer this `_meta` over the `_meta` of the list entry."""
    return lambda outcome, uri: [{**item, "_meta": meta} for item in contents(outcome, uri)]


def _page_meta(config: AppPage) -> JsonObject:
    """Return the `_meta.ui` of a page (SEP-1865, UIResourceMeta). Hosts use defaults for omitted members."""
    meta: dict[str, Json] = {}
    if config.csp is not None:
        meta["csp"] = {"connectDomains": config.csp.connect, "resourceDomains": config.csp.resources}
    if "permissions" in config.model_fields_set:
        meta["permissions"] = {name: {} for name in config.permissions}
    if config.border is not None:
        meta["prefersBorder"] = config.border
    return meta
