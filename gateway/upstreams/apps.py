"""MCP Apps (SEP-1865) of upstreams, whose pages call tools by the upstream's own names. Pure.

Why every tool of an upstream that has a page keeps its own name: which of them a page calls stands in its HTML alone.
"""

from typing import Final

from gateway.json_types import JsonObject
from gateway.upstreams.uris import PrefixedUris

_UI: Final = "ui"
_URI: Final = "resourceUri"
# SEP-1865: this flat key is deprecated; some servers still send it, alone or beside the other.
_OLD_KEY: Final = "ui/resourceUri"


def page_uris(tool: JsonObject) -> list[str]:
    """Return the upstream's own URIs of the page that shows the tool's result."""
    return [uri for uri in (_ui(tool).get(_URI), _meta(tool).get(_OLD_KEY)) if isinstance(uri, str)]


def is_for_pages(tool: JsonObject) -> bool:
    """Say whether a page may call the tool: the default."""
    # SEP-1865: without `visibility`, the model and the page may both call it.
    visibility = _ui(tool).get("visibility")
    return "app" in visibility if isinstance(visibility, list) else True


def with_page_uris(tool: JsonObject, uris: PrefixedUris) -> JsonObject:
    """Return the definition of a tool with the URI that its page has here."""
    if not page_uris(tool):
        return tool
    meta = dict(_meta(tool))
    if isinstance(uri := _ui(tool).get(_URI), str):
        meta[_UI] = {**_ui(tool), _URI: uris.ours(uri)}
    if isinstance(uri := meta.get(_OLD_KEY), str):
        meta[_OLD_KEY] = uris.ours(uri)
    return {**tool, "_meta": meta}


def _meta(tool: JsonObject) -> JsonObject:
    meta = tool.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _ui(tool: JsonObject) -> JsonObject:
    ui = _meta(tool).get(_UI)
    return ui if isinstance(ui, dict) else {}
