"""Adapts values that a server has sent: removes members of the wrong type, and adds `uri_prefix`. No I/O.

Clients would refuse a whole list because of one member of the wrong type.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gateway.config.models.definition_keys import HINTS
from gateway.executors.invocation import sole_text
from gateway.executors.output.size_limit import text_block
from gateway.json_types import Json, JsonObject

_Types = Mapping[str, type | tuple[type, ...]]

_ENTRY: Final[_Types] = {
    **dict.fromkeys(("name", "title", "description", "mimeType"), str),
    **dict.fromkeys(("inputSchema", "outputSchema", "annotations", "_meta"), dict),
    **dict.fromkeys(("icons", "arguments"), list),
    "size": int,
}
_ANNOTATIONS: Final[_Types] = {
    **dict.fromkeys(HINTS.values(), bool),
    **dict.fromkeys(("title", "lastModified"), str),
    "audience": list,
    "priority": (int, float),
}
_SCHEMA: Final[_Types] = {"properties": dict, "required": list}
_ARGUMENT: Final[_Types] = {"name": str, "title": str, "description": str, "required": bool}
_ICON: Final[_Types] = {"src": str, "mimeType": str, "sizes": list, "theme": str}
_WITH_URIS: Final = frozenset({"content", "contents", "messages"})
_UI: Final = "ui"
_URI: Final = "resourceUri"
# SEP-1865: deprecated, but still sent by some servers.
_OLD_KEY: Final = "ui/resourceUri"
_BLOCKS: Final[Mapping[Json, Mapping[str, type]]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource": {"resource": dict},
    "resource_link": {"uri": str, "name": str},
}
"""Required members of content blocks by type. Later revisions may add types."""


def well_typed(entry: JsonObject) -> dict[str, Json]:
    """Return a list entry or content block without members of the wrong type."""
    found = _typed(entry, _ENTRY)
    if "annotations" in found:
        found["annotations"] = _typed(found["annotations"], _ANNOTATIONS)
    # Some servers write an empty object as a list. Only the root of a schema is checked.
    for member in ("inputSchema", "outputSchema"):
        if member in found:
            found[member] = _typed(found[member], _SCHEMA)
    for member, types, key in (("arguments", _ARGUMENT, "name"), ("icons", _ICON, "src")):
        if member in found:
            items = [_typed(item, types) for item in mappings(found[member])]
            found[member] = [item for item in items if item.get(key)]
    return found


def well_typed_blocks(value: Json, *, sender: str) -> list[JsonObject]:
    """Return content blocks. Strings become text blocks, and invalid blocks are replaced by a note."""
    listed = value if isinstance(value, list) else [value]
    blocks = mappings([text_block(each) if isinstance(each, str) else each for each in listed])
    if sole_text(blocks) is not None:
        return blocks  # the most common result
    return [_block(each, sender) for each in blocks]


def well_typed_contents(value: Json) -> list[JsonObject]:
    """Return resource contents that have a URI, and text or a blob."""
    return [_typed(each, _ENTRY) for each in mappings(value) if _are_contents(each)]


def well_typed_messages(value: Json, *, sender: str) -> list[JsonObject]:
    """Return prompt messages that have a role and content."""
    return [
        {**each, "content": _block(each["content"], sender)}
        for each in mappings(value)
        # A tuple, because a role of the wrong type can be unhashable.
        if each.get("role") in ("user", "assistant") and isinstance(each.get("content"), dict)
    ]


def mappings(value: Json) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _block(block: JsonObject, sender: str) -> JsonObject:
    kind = block.get("type")
    needed = _BLOCKS.get(kind, {}) if isinstance(kind, str) else {"type": str}
    is_whole = all(isinstance(block.get(name), type_) for name, type_ in needed.items())
    if not is_whole or (kind == "resource" and not _are_contents(block["resource"])):
        return {"type": "text", "text": f"[invalid content from {sender} is left out]"}
    return well_typed(block)


def _are_contents(value: JsonObject) -> bool:
    return _has_text(value, ("uri",)) and _has_text(value, ("text", "blob"))


def _has_text(value: JsonObject, names: Iterable[str]) -> bool:
    return any(isinstance(value.get(name), str) for name in names)


def _typed(value: JsonObject, types: _Types) -> dict[str, Json]:
    return {name: member for name, member in value.items() if isinstance(member, types.get(name, object))}


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
    """Return the URIs of the page that shows a tool's results, as the server names them."""
    return [uri for uri in (ui_of(tool).get(_URI), _meta(tool).get(_OLD_KEY)) if isinstance(uri, str)]


def ui_of(tool: JsonObject) -> JsonObject:
    ui = _meta(tool).get(_UI)
    return ui if isinstance(ui, dict) else {}


def _meta(tool: JsonObject) -> JsonObject:
    meta = tool.get("_meta")
    return meta if isinstance(meta, dict) else {}
