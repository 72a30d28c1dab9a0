"""Reads servers from files of MCP clients (`.mcp.json`, `claude_desktop_config.json`, `mcp.json`).

Disabled servers and tools stay disabled. Unusable servers are skipped with a warning. Invalid JSON is an error.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.models.definition_keys import may_begin_names
from gateway.config.models.outbound_auth import OutboundAuth
from gateway.config.models.upstreams import Upstream
from gateway.config.reading.json_composer import compose_json
from gateway.config.reading.nodes import Diagnostic, MapItem, Node, Place, Scalar, Sequence, plain
from gateway.config.reading.nodes import Mapping as MappingNode
from gateway.config.reading.source_file import SourceFile
from gateway.config.reading.validation_messages import keys_of
from gateway.errors import Severity

_SECTIONS: Final = ("mcpServers", "servers", "context_servers", "mcp.servers", "amp.mcpServers", "mcp")
"""Keys that contain servers. VS Code uses `servers` and `mcp.servers`, Zed `context_servers`, and opencode `mcp`."""
_EXCLUDED: Final = ("excludeMCPServers", "disabledMcpServers", "disabledMcpjsonServers")
_ALLOWED: Final = ("allowMCPServers", "enabledMcpjsonServers")
"""Keys of Gemini CLI and Claude Code. `_EXCLUDED` keys list disabled servers, `_ALLOWED` keys all enabled servers."""
_SWITCHES: Final = {"disabled": False, "enabled": True, "isactive": True, "active": True}
"""Maps each key, in lower case, to the value that enables the server."""
_WORDS: Final = {True: ("true", "1", "yes", "on"), False: ("false", "0", "no", "off")}
_EXCLUDED_TOOLS: Final = frozenset({"disabledTools", "excludeTools", "disabled_tools", "deniedTools"})
_INCLUDED_TOOLS: Final = frozenset({"includeTools", "enabledTools", "enabled_tools", "allowedTools", "tools"})
_OURS: Final = {
    "httpUrl": "url",  # Gemini CLI
    "serverUrl": "url",  # Windsurf
    "baseUrl": "url",  # Cherry Studio
    "environment": "env",  # opencode
    "transportType": "type",  # Cline
    "workingDirectory": "cwd",
}
"""Maps key names of MCP clients to keys of `upstreams`."""
_TYPES: Final = {"local": "stdio", "remote": None, "streamablehttp": "http"}
"""Maps `type` in client files, in lower case, to `type` in `upstreams`. None means that the type is detected."""
_COMMON: Final = frozenset({"command", "args", "env", "cwd", "url", "headers", "type"})
"""Keys to suggest for a misspelt key. Most other unknown keys are settings of the client."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9-]+")
_MAY_BE_EMPTY: Final = frozenset({"prefix", "uri_prefix"})


ClientServer = tuple[MapItem, MapItem | None]
"""A server reduced to the keys of an upstream, and its `envFile`. Variables in `env` override the file."""


def read_mcp_servers_file(source: SourceFile) -> tuple[Mapping[str, ClientServer], list[Diagnostic]]:
    """Return the servers by name, and the problems of the file."""
    source = SourceFile(source.path, source.text, is_of_client=True)
    root, problems = compose_json(source)
    if root is None:
        return {}, [msgspec.structs.replace(each, path=("mcp_json",)) for each in problems]
    # All keys on the path to a duplicate key.
    ambiguous = {key for each in problems for key in each.path}
    diagnostics = [_duplicate_problem(each) for each in problems if each.path[0] in _SECTIONS]
    found = dict(_sections(root))
    is_empty = isinstance(root, MappingNode) and not root.entries
    if not found and not is_empty:  # some clients write `{}` initially
        message = "expected a JSON object with `mcpServers` or `servers`, as in files of MCP clients"
        return {}, [Diagnostic(message=message, path=("mcp_json",), place=Place(source, 1, 1))]
    servers: dict[str, ClientServer] = {}
    excluded, allowed = _names_of(root, _EXCLUDED, "excluded"), _names_of(root, _ALLOWED, "allowed")
    for section, entries in found.items():
        for name, entry in entries.items():
            if _is_comment(name) or name in excluded or (allowed and name not in allowed) or _is_disabled(entry):
                continue
            if name in ambiguous:
                continue
            if (first := servers.get(name)) is not None:  # in two sections
                message = f"`{name}` is defined twice, first in line {first[0].place.line}"
                diagnostics.append(_warning(message, (name,), entry))
            elif isinstance(entry.node, MappingNode):
                servers[name] = _upstream_entry(name, entry, diagnostics)
            elif section != "mcp":  # `mcp` also contains other settings
                diagnostics.append(_warning("expected a JSON object; this server is skipped", (name,), entry))
    return servers, diagnostics


def _duplicate_problem(found: Diagnostic) -> Diagnostic:
    """Return the problem of a duplicate key: an error for a section, a warning for a key within a server."""
    if len(found.path) == 1:
        return msgspec.structs.replace(found, path=("mcp_json",))
    message = f"{found.message}; this server is skipped"
    path = ("upstreams", *found.path[1:])
    return msgspec.structs.replace(found, message=message, path=path, severity=Severity.WARNING)


def _sections(root: Node) -> Iterator[tuple[str, Mapping[str, MapItem]]]:
    for key in _SECTIONS:
        section = _member(root, key)
        if key == "mcp" and isinstance(servers := _member(section, "servers"), MappingNode):
            section = servers
        if isinstance(section, MappingNode):
            yield key, section.entries


def _member(node: Node | None, key: str) -> Node | None:
    entry = node.entries.get(key) if isinstance(node, MappingNode) else None
    return None if entry is None else entry.node


def _names_of(root: Node, keys: tuple[str, ...], in_mcp: str) -> frozenset[str]:
    lists = [*(_member(root, key) for key in keys), _member(_member(root, "mcp"), in_mcp)]
    return frozenset(str(name) for each in lists if isinstance(each, Sequence) for name in map(plain, each.items))


def _is_comment(key: str) -> bool:
    return key.startswith(("//", "_", "#", "$")) or key == "comment"


def _is_disabled(entry: MapItem) -> bool:
    """Whether any key disables a server, even if another key enables the server."""
    return any(
        (on := _SWITCHES.get(key.lower())) is not None and str(plain(item.node)).lower() in _WORDS[not on]
        for key, item in _flat(entry.node)
    )


def _upstream_entry(name: str, entry: MapItem, diagnostics: list[Diagnostic]) -> ClientServer:
    """Convert a client's entry to an entry of `upstreams`, and the value of `envFile`. Warn about unknown keys."""
    written: dict[str, MapItem] = {}
    for key, item in _flat(entry.node):
        renamed = _OURS.get(key, key)
        is_empty = renamed not in _MAY_BE_EMPTY and plain(item.node) in (None, "")
        if is_empty or key.lower() in _SWITCHES or _is_comment(key):
            continue
        if renamed == "type":
            written_type = str(plain(item.node))
            kind = _TYPES.get(written_type.replace("-", "").lower(), written_type)
            if kind is None:
                continue
            item = _with(item, Scalar(kind, item.node.place, item.node.place))  # noqa: PLW2901
        # `url` takes precedence over its names in other clients.
        written.setdefault(key if renamed in written else renamed, item)
    env_file = written.pop("envFile", None)
    known = frozenset(keys_of(Upstream))
    kept = {key: item for key, item in written.items() if key in known and _has_our_format(key, item.node)}
    _select_tools(written, kept)
    if "prefix" not in kept and not may_begin_names(f"{name}_") and (fit := _UNFIT.sub("_", name).strip("_")):
        kept["prefix"] = _with(entry, Scalar(f"{fit}_", entry.node.place, entry.node.place))
        diagnostics.append(_warning(f"`{name}_` cannot start a tool name, so `prefix` is `{fit}_`", (name,), entry))
    if (env := kept.get("env")) is not None and isinstance(env.node, MappingNode):
        given = {key: item for key, item in env.node.entries.items() if not item.is_empty}
        kept["env"] = _with(env, _mapping(env.node, given))
    for key, item in written.items():
        if key not in kept and key not in _EXCLUDED_TOOLS | _INCLUDED_TOOLS:
            hint = "" if key in known else did_you_mean(key, _COMMON - kept.keys())
            message = f"`{key}` is a setting of the client and is ignored{hint}"
            diagnostics.append(_warning(message, (name, key), item))
    return _with(entry, _mapping(entry.node, kept)), env_file


def _flat(node: Node) -> Iterator[tuple[str, MapItem]]:
    """Yield the keys of an entry, including keys nested below `command` (Zed) and `transport` (Continue)."""
    for key, item in node.entries.items() if isinstance(node, MappingNode) else ():
        if key in {"command", "transport"} and isinstance(item.node, MappingNode):
            yield from (("command" if below == "path" else below, each) for below, each in item.node.entries.items())
        else:
            yield key, item


def _select_tools(written: Mapping[str, MapItem], kept: dict[str, MapItem]) -> None:
    """Convert the client's lists of enabled and disabled tools to `tools`. An existing `include` takes precedence."""
    for keys, ours in ((_INCLUDED_TOOLS, "include"), (_EXCLUDED_TOOLS, "exclude")):
        for key, item in written.items():
            if key not in keys or key in kept:
                continue
            tools = kept.get("tools", _with(item, _mapping(item.node, {})))
            if not isinstance(tools.node, MappingNode) or (ours == "include" and ours in tools.node.entries):
                continue
            before = tools.node.entries.get(ours)
            if before is not None and isinstance(before.node, Sequence) and isinstance(item.node, Sequence):
                item = _with(item, msgspec.structs.replace(item.node, items=(*before.node.items, *item.node.items)))  # noqa: PLW2901
            kept["tools"] = _with(tools, _mapping(tools.node, {**tools.node.entries, ours: item}))


def _with(item: MapItem, node: Node) -> MapItem:
    return MapItem(item.place, node)


def _mapping(like: Node, entries: Mapping[str, MapItem]) -> MappingNode:
    return MappingNode(entries, like.place, like.end)


def _has_our_format(key: str, node: Node) -> bool:
    """Whether a value has the format of `upstreams`. In client files, `timeout` is a number and `tools` is a list."""
    match key:
        case "timeout":
            return isinstance(node, Scalar) and isinstance(node.value, str)
        case "tools":
            return not isinstance(node, Sequence)
        case "roots":
            return isinstance(node, Scalar)
        case "auth":  # in Cursor, `auth` contains `CLIENT_ID`
            return not isinstance(node, MappingNode) or any(each in node.entries for each in keys_of(OutboundAuth))
        case _:
            return True


def _warning(message: str, path: tuple[str, ...], item: MapItem) -> Diagnostic:
    return Diagnostic(message=message, path=("upstreams", *path), place=item.place, severity=Severity.WARNING)
