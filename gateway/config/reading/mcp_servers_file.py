"""Reads the servers of a JSON file as MCP clients have it (`.mcp.json`, `claude_desktop_config.json`, `mcp.json`).

JSON is read as YAML, which it is but for tabs and a few characters: so each server has its place, and errors in it are
located.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from gateway.config.models.upstreams import Upstream
from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import Diagnostic, MapItem, Node, Place, Scalar, Sequence, place_at
from gateway.config.reading.nodes import Mapping as MappingNode
from gateway.config.reading.source_file import SourceFile
from gateway.config.reading.validation_messages import keys_of
from gateway.errors import Severity

_SECTIONS: Final = ("mcpServers", "servers")
_URLS: Final = ("httpUrl", "serverUrl")
"""What Gemini CLI and Windsurf call `url`."""
# YAML 1.2 §6.1 has no tabs in indentation. As many spaces keep the columns of errors.
_TABS: Final = re.compile(r"(?m)^[ \t]*\t[ \t]*")
# RFC 8259 §7: a character beyond the BMP is escaped as two surrogates. Any other escape is matched, too, so that the
# second half of `\\` begins none. Other characters of a JSON string that YAML 1.2 §5 takes for line breaks, or refuses.
_UNLIKE_YAML: Final = re.compile(
    r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|.)|[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]",
    re.IGNORECASE | re.DOTALL,
)


def read_mcp_servers_file(source: SourceFile) -> tuple[Mapping[str, MapItem], list[Diagnostic]]:
    """Read the mappings under `mcpServers` and `servers`: the servers by name, and what is wrong with the file.

    Keys that mean something to a client alone are left out.
    """
    source = SourceFile(source.path, source.text, is_of_client=True)
    text = _UNLIKE_YAML.sub(_in_yaml, _TABS.sub(lambda match: " " * len(match[0]), source.text))
    composed = compose(source, text)
    diagnostics = [
        Diagnostic(message=each.message, path=("mcp_json",), place=each.place) for each in composed.diagnostics
    ]
    if composed.root is None and diagnostics:
        return {}, diagnostics
    found = dict(_sections(composed.root))
    is_empty = isinstance(composed.root, MappingNode) and not composed.root.entries
    if not found and not is_empty:  # some clients write `{}` before they have a server
        message = "expected a JSON object with `mcpServers` or `servers`, as MCP clients have it"
        return {}, [Diagnostic(message=message, path=("mcp_json",), place=Place(source, 1, 1))]
    servers: dict[str, MapItem] = {}
    for section, node in found.items():
        if not isinstance(node, MappingNode):
            message = f"expected a JSON object of servers under `{section}`"
            place = place_at(source, node.start)
            diagnostics.append(Diagnostic(message=message, path=("mcp_json",), place=place))
            continue
        for name, entry in node.entries.items():
            if _is_disabled(entry):
                continue
            if (first := servers.get(name)) is not None:  # under both keys
                message = f"`{name}` is defined twice, first in line {first.place.line}"
                diagnostics.append(Diagnostic(message=message, path=("upstreams", name), place=entry.place))
                continue
            servers[name] = _ours(name, entry, diagnostics)
    return servers, diagnostics


def _in_yaml(found: re.Match[str]) -> str:
    """A character as YAML 1.2 §5.7 escapes it; an escape that it reads alike stays."""
    if len(found[0]) == 1:
        return f"\\u{ord(found[0]):04x}"
    if found[1] is None:
        return found[0]
    return f"\\U{0x10000 + ((int(found[1], 16) - 0xD800) << 10) + (int(found[2], 16) - 0xDC00):08x}"


def _sections(root: Node | None) -> Iterator[tuple[str, Node]]:
    if isinstance(root, MappingNode):
        yield from ((key, root.entries[key].node) for key in _SECTIONS if key in root.entries)


def _is_disabled(entry: MapItem) -> bool:
    node = entry.node.entries.get("disabled") if isinstance(entry.node, MappingNode) else None
    return node is not None and isinstance(node.node, Scalar) and node.node.value is True


def _ours(name: str, entry: MapItem, diagnostics: list[Diagnostic]) -> MapItem:
    """The entry with the keys that are known here. What else a client keeps in it is its own, and is named."""
    if not isinstance(entry.node, MappingNode):
        return entry
    known = frozenset(keys_of(Upstream))
    kept = {}
    for key, item in entry.node.entries.items():
        if key in known and _is_ours(key, item.node):
            kept[key] = item
        elif key in _URLS and "url" not in entry.node.entries:
            kept["url"] = item
        elif key != "disabled":
            message = f"`{key}` is the client's own, and is not used here"
            diagnostics.append(
                Diagnostic(message=message, path=("upstreams", name, key), place=item.place, severity=Severity.WARNING)
            )
    node = entry.node
    return MapItem(entry.source, entry.key_start, MappingNode(kept, node.source, node.start, node.is_flow, node.size))


def _is_ours(key: str, node: Node) -> bool:
    """Whether a key that clients have, too, is meant as ours: their `timeout` is a number, their `tools` a list."""
    match key:
        case "timeout":
            return isinstance(node, Scalar) and isinstance(node.value, str)
        case "tools":
            return not isinstance(node, Sequence)
        case _:
            return True
