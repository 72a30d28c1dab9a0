"""Converts definitions, results and requests to older revisions, mostly by removing undefined fields.

The input is always in the format of the newest revision. The tables come from a comparison of the five published
`schema.json` files.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gateway.json_types import Json, JsonObject
from gateway.wire.revisions import LATEST_MODERN, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28

_SINCE: Final[Mapping[str, Mapping[str, str]]] = {
    "Implementation": {
        "title": V2025_06_18,
        "description": V2025_11_25,
        "icons": V2025_11_25,
        "websiteUrl": V2025_11_25,
    },
    "Tool": {
        "annotations": V2025_03_26,
        "title": V2025_06_18,
        "outputSchema": V2025_06_18,
        "_meta": V2025_06_18,
        "icons": V2025_11_25,
    },
    "Resource": {"title": V2025_06_18, "_meta": V2025_06_18, "icons": V2025_11_25},
    "Prompt": {"title": V2025_06_18, "_meta": V2025_06_18, "icons": V2025_11_25},
    "PromptArgument": {"title": V2025_06_18},
    "Annotations": {"lastModified": V2025_06_18},
    "ResourceContents": {"_meta": V2025_06_18},
    "ContentBlock": {"_meta": V2025_06_18},
    "Capabilities": {"completions": V2025_03_26, "extensions": V2026_07_28},
    "ProgressParams": {"message": V2025_03_26},
    "Result": {
        "structuredContent": V2025_06_18,
        "ttlMs": V2026_07_28,
        "cacheScope": V2026_07_28,
        "resultType": V2026_07_28,
    },
    "elicitation/create": {"mode": V2025_11_25},
    "sampling/createMessage": {"tools": V2025_11_25, "toolChoice": V2025_11_25},
    "roots/list": {},
}
"""The revision that introduced each field, by type or method. Fields of revision 2024-11-05 are not listed."""


def strip(kind: str, value: JsonObject, revision: str) -> dict[str, Json]:
    if revision == LATEST_MODERN:
        return dict(value)
    since = _SINCE[kind]
    if since.keys().isdisjoint(value):
        return dict(value)
    # An empty string sorts before every revision.
    return {name: field for name, field in value.items() if since.get(name, "") <= revision}


def implementation(value: JsonObject, revision: str) -> dict[str, Json]:
    return strip("Implementation", value, revision)


def capabilities(value: JsonObject, revision: str) -> dict[str, Json]:
    return strip("Capabilities", value, revision)


def tool(value: JsonObject, revision: str) -> dict[str, Json]:
    """Return a tool definition for a revision. Before 2026-07-28, an output schema must have the type `object`."""
    definition = strip("Tool", value, revision)
    if revision < V2026_07_28:
        if definition.get("outputSchema", {}).get("type") != "object":
            definition.pop("outputSchema", None)
        definition["inputSchema"] = _with_object_properties(definition["inputSchema"])
    return definition


def resource(value: JsonObject, revision: str) -> dict[str, Json]:
    return _with_annotations(strip("Resource", value, revision), revision)


def prompt(value: JsonObject, revision: str) -> dict[str, Json]:
    definition = strip("Prompt", value, revision)
    if "arguments" in definition:
        definition["arguments"] = [strip("PromptArgument", entry, revision) for entry in definition["arguments"]]
    return definition


def content(blocks: Sequence[JsonObject], revision: str) -> list[JsonObject]:
    return list(blocks) if revision == LATEST_MODERN else [_block(block, revision) for block in blocks]


def structured(value: Json, revision: str) -> Json:
    """Wrap structured content in an object if the revision requires one (2025-11-25, "Structured Content")."""
    return value if revision >= V2026_07_28 or isinstance(value, dict) else {"result": value}


def prompt_messages(messages: Sequence[JsonObject], revision: str) -> list[JsonObject]:
    return [{**message, "content": _block(message["content"], revision)} for message in messages]


def resource_contents(contents: Sequence[JsonObject], revision: str) -> list[JsonObject]:
    return [strip("ResourceContents", entry, revision) for entry in contents]


def _block(block: JsonObject, revision: str) -> JsonObject:
    since, stand_in = _BLOCKS_SINCE.get(block["type"], ("", _unchanged))
    cut = _with_annotations(strip("ContentBlock", block if revision >= since else stand_in(block), revision), revision)
    if cut["type"] == "resource":
        cut["resource"] = strip("ResourceContents", cut["resource"], revision)
    elif cut["type"] == "resource_link":
        return resource(cut, revision)
    return cut


def _link_as_text(block: JsonObject) -> JsonObject:
    return {"type": "text", "text": f"{block.get('title') or block['name']}: {block['uri']}"}


def _audio_as_resource(block: JsonObject) -> JsonObject:
    """Return an audio block as an embedded resource, because 2024-11-05 has no audio."""
    extension = block["mimeType"].partition("/")[2] or "bin"
    # The schema requires a URI, although clients cannot read this one.
    contents = {"uri": f"audio:///audio.{extension}", "mimeType": block["mimeType"], "blob": block["data"]}
    return {"type": "resource", "resource": contents}


def _unchanged(block: JsonObject) -> JsonObject:
    return block


_BLOCKS_SINCE: Final[Mapping[str, tuple[str, Callable[[JsonObject], JsonObject]]]] = {
    "audio": (V2025_03_26, _audio_as_resource),
    "resource_link": (V2025_06_18, _link_as_text),
}
"""The revision that introduced each block type, and the function that converts the block for older revisions."""


def _with_annotations(value: dict[str, Json], revision: str) -> dict[str, Json]:
    if (annotations := value.get("annotations")) is not None:
        value["annotations"] = strip("Annotations", annotations, revision)
    return value


def _with_object_properties(schema: JsonObject) -> JsonObject:
    """Replace boolean schemas of properties with objects, because older revisions only allow objects."""
    properties = schema.get("properties", {})
    if not any(isinstance(entry, bool) for entry in properties.values()):
        return schema
    plain: dict[bool, JsonObject] = {True: {}, False: {"not": {}}}
    return {
        **schema,
        "properties": {name: plain[entry] if isinstance(entry, bool) else entry for name, entry in properties.items()},
    }
