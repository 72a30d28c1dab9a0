"""Adds `uri_prefix` to the URIs of an upstream server. Pure."""

from typing import Final

from gateway.json_types import Json, JsonObject

_WITH_URIS: Final = frozenset({"content", "contents", "messages"})
_UI: Final = "ui"
_URI: Final = "resourceUri"
# SEP-1865: deprecated, but still sent by some servers.
_OLD_KEY: Final = "ui/resourceUri"


def with_prefix(result: JsonObject, prefix: str) -> JsonObject:
    """Add the prefix to the URIs in a result."""
    if not prefix:
        return result
    return {name: _prefixed(value, prefix) if name in _WITH_URIS else value for name, value in result.items()}


def tool_with_prefix(tool: JsonObject, prefix: str) -> JsonObject:
    """Add the prefix to the URI of a tool's page (MCP Apps, SEP-1865)."""
    if not page_uris(tool):
        return tool
    meta = dict(_meta(tool))
    if isinstance(uri := ui_of(tool).get(_URI), str):
        meta[_UI] = {**ui_of(tool), _URI: f"{prefix}{uri}"}
    if isinstance(uri := meta.get(_OLD_KEY), str):
        meta[_OLD_KEY] = f"{prefix}{uri}"
    return {**tool, "_meta": meta}


def _prefixed(value: Json, prefix: str) -> Json:
    match value:
        case list():
            return [_prefixed(each, prefix) for each in value]
        case {"type": "resource", "resource": {"uri": str()} as resource}:
            return {**value, "resource": _prefixed(resource, prefix)}
        case {"content": dict() as content}:
            return {**value, "content": _prefixed(content, prefix)}
        case {"uri": str(uri)}:
            return {**value, "uri": f"{prefix}{uri}"}
    return value


def page_uris(tool: JsonObject) -> list[str]:
    """Return the server's URIs of the page that shows a tool's results."""
    return [uri for uri in (ui_of(tool).get(_URI), _meta(tool).get(_OLD_KEY)) if isinstance(uri, str)]


def ui_of(tool: JsonObject) -> JsonObject:
    ui = _meta(tool).get(_UI)
    return ui if isinstance(ui, dict) else {}


def _meta(tool: JsonObject) -> JsonObject:
    meta = tool.get("_meta")
    return meta if isinstance(meta, dict) else {}
