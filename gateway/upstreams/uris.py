"""Adds `uri_prefix` to the URIs of an upstream server. Pure."""

from typing import Final

import msgspec

from gateway.json_types import Json, JsonObject

_WITH_URIS: Final = frozenset({"content", "contents", "messages"})
_UI: Final = "ui"
_URI: Final = "resourceUri"
# SEP-1865: deprecated, but still sent by some servers.
_OLD_KEY: Final = "ui/resourceUri"


class PrefixedUris(msgspec.Struct, frozen=True):
    prefix: str = ""

    def ours(self, uri: str) -> str:
        return f"{self.prefix}{uri}"

    def theirs(self, uri: str) -> str:
        return uri.removeprefix(self.prefix)

    def in_result(self, result: JsonObject) -> JsonObject:
        if not self.prefix:
            return result
        return {name: self._prefixed(value) if name in _WITH_URIS else value for name, value in result.items()}

    def in_tool(self, tool: JsonObject) -> JsonObject:
        """Add the prefix to the URI of a tool's page (MCP Apps, SEP-1865)."""
        if not page_uris(tool):
            return tool
        meta = dict(_meta(tool))
        if isinstance(uri := ui_of(tool).get(_URI), str):
            meta[_UI] = {**ui_of(tool), _URI: self.ours(uri)}
        if isinstance(uri := meta.get(_OLD_KEY), str):
            meta[_OLD_KEY] = self.ours(uri)
        return {**tool, "_meta": meta}

    def _prefixed(self, value: Json) -> Json:
        match value:
            case list():
                return [self._prefixed(each) for each in value]
            case {"type": "resource", "resource": {"uri": str()} as resource}:
                return {**value, "resource": self._prefixed(resource)}
            case {"content": dict() as content}:
                return {**value, "content": self._prefixed(content)}
            case {"uri": str(uri)}:
                return {**value, "uri": self.ours(uri)}
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
