"""Converts the lists of an upstream server to definitions. No I/O.

The server's entry in the configuration selects tools, resources and prompts, and overrides their fields.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec
import uritemplate
from msgspec.structs import replace

from gateway.catalog.compile.relayed import RelayBackend, RelayedPrompt, RelayedResource, RelayedTool
from gateway.catalog.primitives import Completer
from gateway.config.models.base import defaults_of
from gateway.config.models.definition_keys import (
    HINTS,
    UNFIT_PREFIX,
    Definition,
    ToolAnnotations,
    ToolTask,
    may_begin_names,
    narrowed,
)
from gateway.config.models.definitions import PromptArgument, PromptOverride, ResourceOverride, ToolOverride
from gateway.config.models.upstreams import (
    PromptSelection,
    ResourceSelection,
    ToolSelection,
    Upstream,
)
from gateway.config.reading.source_map import SourceDefinition
from gateway.executors.content import ABSOLUTE
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.schemas.keywords import header_parameters
from gateway.upstreams.client.relayed_call import EVERYTHING, allowed
from gateway.upstreams.relay import (
    Relay,
    ResourceRelay,
    completion_relay,
    prompt_relay,
    sign_in_relay,
    tool_relay,
    well_typed,
)
from gateway.upstreams.server_lists import ServerLists
from gateway.wire.revisions import Era

# MCP allows 128 (MCP 2025-11-25 server/tools, "Tool Names"), but several models accept only 64.
MAX_NAME: Final = 64
_TASK_IF_ASKED: Final = ToolTask(mode="optional", after=timedelta(days=1), ask="before")
"""Makes a call a task only if the server sends an input request during the call."""
_SHARED_KEYS: Final = ("timeout", "concurrency", "queue", "rate_limit")
_UI: Final = "ui"
_URI: Final = "resourceUri"
# SEP-1865: deprecated, but still sent by some servers.
_OLD_KEY: Final = "ui/resourceUri"

Definitions = dict[tuple[str, str], SourceDefinition]
_Selection = ToolSelection | ResourceSelection | PromptSelection


class UpstreamEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    config: Upstream
    relay: Relay
    written: JsonObject
    warnings: list[tuple[DocumentPath, str]]

    @property
    def prefix(self) -> str:
        return _prefix(self.name, self.config)


def definitions_of(entry: UpstreamEntry, lists: ServerLists) -> Definitions:
    found: Definitions = {}
    entry.warnings.extend(((), said) for said in lists.deviations)
    for key, definition in (*_tools(entry, lists), *_resources(entry, lists), *_prompts(entry, lists)):
        if key in found:
            what = f"the {key[0].removesuffix('s')} `{key[1]}` is not offered: the upstream lists it twice"
            entry.warnings.append(((), what))
        else:
            found[key] = definition
    return found


def sign_in_tool(entry: UpstreamEntry) -> Definitions:
    """Return the `sign_in` tool, which is the only tool of a server until a user has signed in."""
    if prefix_error(entry.name, entry.config):
        return {}
    wire: dict[str, Json] = {
        "name": "sign_in",
        "title": f"Sign in to {entry.name}",
        "description": f"Signs you in to {entry.name}. Its tools are available afterwards.",
        "inputSchema": {"type": "object", "properties": {}},
    }
    override = defaults_of(ToolOverride)
    backend = RelayBackend(server=entry.name, definition=wire, executor=sign_in_relay(entry.relay))
    config = RelayedTool.model_construct(
        upstream=backend,
        input_schema=wire["inputSchema"],
        annotations=ToolAnnotations.model_construct(),
        task=None,
        **{key: getattr(override, key) for key in ("output", "confirm", "confirm_fallback", "ask_timeout", "tests")},
        **_common(entry, override, wire),
    )
    key = ("tools", f"{entry.prefix}sign_in")
    return {key: _source_definition(entry, ("tools", "override", "sign_in"), wire, config)}


def prefix_error(name: str, config: Upstream) -> str | None:
    """Return an error text if tool names cannot start with the server's prefix, otherwise None.

    The default prefix is the server's name and `_`.
    """
    prefix = _prefix(name, config)
    if not config.tools.include or may_begin_names(prefix):
        return None
    return f"the tools are not offered, because `{prefix}` {UNFIT_PREFIX}. Set `prefix`"


def _prefix(name: str, config: Upstream) -> str:
    return f"{name}_" if config.prefix is None else config.prefix


def _tools(entry: UpstreamEntry, lists: ServerLists) -> Iterator[tuple[tuple[str, str], SourceDefinition]]:
    selection = entry.config.tools
    has_pages = any(map(page_uris, lists.tools))
    chosen = _selected(entry, "tools", selection, {"name": lists.tools})
    if prefix_error(entry.name, entry.config):
        return
    for by, wire in chosen:
        remote = wire[by]
        override = selection.override.get(remote, defaults_of(ToolOverride))
        name = f"{entry.prefix}{override.name or remote}"
        if _is_too_long(name, entry, "tool"):
            continue
        if not may_begin_names(name[: MAX_NAME - 1]):
            allowed = "only the characters A-Z a-z 0-9 _ . - are allowed. Set a `name` in `override`"
            entry.warnings.append(((), f"the tool `{name}` is not offered: {allowed}"))
            continue
        # Tasks of 2025-11-25 are ordinary calls for clients. An overridden result may not match the server's schema.
        left_out = {"execution", "outputSchema"} if _changes_output(override) else {"execution"}
        own = {key: value for key, value in wire.items() if key not in left_out}
        # MCP 2025-11-25 schema, Tool: clients refuse the whole list if a root is not `type: object`.
        schema = {**wire.get("inputSchema", {}), "type": "object"}
        annotations = _annotations(wire, override)
        executor = tool_relay(
            replace(entry.relay, ask_timeout=override.ask_timeout) if override.ask_timeout else entry.relay,
            remote,
            is_repeatable=bool(annotations.idempotent or annotations.read_only),
            mirrored=header_parameters(schema)[0],
            is_task=_is_task(wire),
        )
        validates = entry.config.validate_ if override.validate_ is None else override.validate_
        relayed = RelayBackend(
            server=entry.name,
            definition=_tool_with_prefix(own, entry.relay.uri_prefix),
            executor=executor,
            validates=validates,
            name_in_app=remote if has_pages and _is_for_pages(wire) else "",
        )
        config = RelayedTool.model_construct(
            upstream=relayed,
            input_schema=schema,
            annotations=annotations,
            task=_TASK_IF_ASKED if _asks_inside_calls(entry.config, lists) else None,
            **{
                key: getattr(override, key) for key in ("output", "confirm", "confirm_fallback", "ask_timeout", "tests")
            },
            **_common(entry, override, wire),
        )
        yield ("tools", name), _source_definition(entry, ("tools", "override", remote), wire, config)


def _resources(entry: UpstreamEntry, lists: ServerLists) -> Iterator[tuple[tuple[str, str], SourceDefinition]]:
    selection = entry.config.resources
    for member, wire in _selected(
        entry, "resources", selection, {"uri": lists.resources, "uriTemplate": lists.templates}
    ):
        # Several clients refuse the whole list because of one URI without a scheme.
        if member == "uri" and not ABSOLUTE.match(wire["uri"]):
            what = f"the resource `{wire['uri']}` is not offered: its URI has no scheme, such as `file:`"
            entry.warnings.append(((), what))
            continue
        remote, uri = wire[member], f"{entry.relay.uri_prefix}{wire[member]}"
        override = selection.override.get(remote, defaults_of(ResourceOverride))
        is_template = member == "uriTemplate"
        completers: dict[str, Completer] = {}
        if is_template and lists.completes:
            reference = {"type": "ref/resource", "uri": remote}
            completers = _completers(entry.relay, reference, [*uritemplate.variables(remote)])
        relayed = RelayBackend(
            server=entry.name,
            definition={**wire, member: uri},
            executor=ResourceRelay(relay=entry.relay, template=remote, is_template=is_template),
            completers=completers,
        )
        config = RelayedResource.model_construct(
            upstream=relayed,
            uri=uri,
            mime_type=override.mime_type or wire.get("mimeType"),
            annotations=override.annotations,
            **_common(entry, override, wire),
        )
        yield ("resources", uri), _source_definition(entry, ("resources", "override", remote), wire, config)


def _prompts(entry: UpstreamEntry, lists: ServerLists) -> Iterator[tuple[tuple[str, str], SourceDefinition]]:
    selection = entry.config.prompts
    for by, wire in _selected(entry, "prompts", selection, {"name": lists.prompts}):
        remote = wire[by]
        override = selection.override.get(remote, defaults_of(PromptOverride))
        name = f"{entry.prefix}{override.name or remote}"
        if _is_too_long(name, entry, "prompt"):
            continue
        arguments: list[JsonObject] = wire.get("arguments", [])
        names = [each["name"] for each in arguments]
        reference = {"type": "ref/prompt", "name": remote}
        relayed = RelayBackend(
            server=entry.name,
            definition=wire,
            executor=prompt_relay(entry.relay, remote, override.description),
            completers=_completers(entry.relay, reference, names) if lists.completes else {},
        )
        config = RelayedPrompt.model_construct(
            upstream=relayed,
            arguments={
                each["name"]: PromptArgument.model_construct(
                    title=each.get("title"),
                    description=each.get("description"),
                    required=each.get("required") is True,
                )
                for each in arguments
            },
            **_common(entry, override, wire),
        )
        yield ("prompts", name), _source_definition(entry, ("prompts", "override", remote), wire, config)


def _completers(relay: Relay, reference: JsonObject, names: list[str]) -> dict[str, Completer]:
    return {name: completion_relay(relay, reference, name) for name in names}


def _selected(
    entry: UpstreamEntry, kind: str, selection: _Selection, lists: Mapping[str, list[dict[str, Json]]]
) -> list[tuple[str, dict[str, Json]]]:
    found: list[tuple[str, dict[str, Json]]] = []
    for by, wires in lists.items():
        named = [(by, well_typed(wire)) for wire in wires if isinstance(wire.get(by), str) and wire[by]]
        if len(named) < len(wires):
            entry.warnings.append(((), f"{len(wires) - len(named)} of its {kind} have no `{by}` and are not offered"))
        found += named
    _warn_of_unmatched(entry, kind, selection, [wire[by] for by, wire in found])
    return [
        (by, wire)
        for by, wire in found
        if _matches(wire[by], selection.include) and not _matches(wire[by], selection.exclude)
    ]


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _warn_of_unmatched(entry: UpstreamEntry, kind: str, selection: _Selection, names: list[str]) -> None:
    for key in ("include", "exclude"):
        for index, pattern in enumerate(getattr(selection, key)):
            # `*` is the default.
            if pattern != "*" and not any(fnmatchcase(name, pattern) for name in names):
                entry.warnings.append(((kind, key, index), f"`{pattern}` does not match any of the upstream's {kind}"))
    for name in selection.override:
        if name not in names:
            what = f"the upstream has no {kind} named `{name}`"
            entry.warnings.append(((kind, "override", name), what))


def _is_too_long(name: str, entry: UpstreamEntry, kind: str) -> bool:
    if len(name) > MAX_NAME:
        what = (
            f"the {kind} `{name}` is not offered: its name has {len(name)} characters, but at most {MAX_NAME} are"
            " allowed. Use a shorter `prefix`, or a `name` in `override`."
        )
        entry.warnings.append(((), what))
        return True
    return False


def _common(entry: UpstreamEntry, override: Definition, wire: JsonObject) -> dict[str, Json]:
    config = entry.config
    fields: dict[str, Json] = {
        name: getattr(override, name) for name in Definition.model_fields if name in override.model_fields_set
    }
    for key in _SHARED_KEYS:
        if fields.get(key) is None:
            fields[key] = getattr(config, key)
    fields["title"] = override.title or _text(wire.get("title"))
    fields["description"] = override.description or _text(wire.get("description"))
    fields["tags"] = tuple(dict.fromkeys([*config.tags, *override.tags]))
    fields["access"] = narrowed(config.access, override.access)
    if "requires" not in override.model_fields_set:
        fields["requires"] = config.requires
    return fields


def _annotations(wire: JsonObject, override: ToolOverride) -> ToolAnnotations:
    said = wire.get("annotations")
    given: dict[str, Any] = {
        ours: value
        for ours, theirs in HINTS.items()
        if isinstance(said, dict) and isinstance(value := said.get(theirs), bool)
    }
    if override.annotations is not None:
        given |= override.annotations.model_dump(exclude_none=True)
    return ToolAnnotations.model_construct(**given)


def _is_for_pages(tool: JsonObject) -> bool:
    # SEP-1865: by default, both models and pages can call a tool.
    visibility = _ui_of(tool).get("visibility")
    return "app" in visibility if isinstance(visibility, list) else True


def _changes_output(override: ToolOverride) -> bool:
    output = override.output
    return output is not None and (output.format != "auto" or any((output.select, output.template, output.schema_)))


def _is_task(wire: JsonObject) -> bool:
    # MCP 2025-11-25 basic/utilities/tasks, "Tool-Level Negotiation": such a tool refuses ordinary calls.
    execution = wire.get("execution")
    return isinstance(execution, dict) and execution.get("taskSupport") == "required"


def _asks_inside_calls(config: Upstream, lists: ServerLists) -> bool:
    return lists.era == Era.LEGACY and config.session != "shared" and bool(allowed(config, EVERYTHING))


def _source_definition(
    entry: UpstreamEntry, place: DocumentPath, wire: JsonObject, config: Definition
) -> SourceDefinition:
    override: Json = entry.written
    for key in place:
        override = override.get(key) if isinstance(override, dict) else None
    path: DocumentPath = ("upstreams", entry.name) if override is None else ("upstreams", entry.name, *place)
    # Leave out timeouts and limits, because their changes need no review.
    common = {key: entry.written.get(key) for key in ("access", "tags", "validate") if key in entry.written}
    return SourceDefinition(path=path, written=[dict(wire), override, common], config=config)


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _tool_with_prefix(tool: JsonObject, prefix: str) -> JsonObject:
    if not page_uris(tool):
        return tool
    meta = dict(_meta(tool))
    if isinstance(uri := _ui_of(tool).get(_URI), str):
        meta[_UI] = {**_ui_of(tool), _URI: f"{prefix}{uri}"}
    if isinstance(uri := meta.get(_OLD_KEY), str):
        meta[_OLD_KEY] = f"{prefix}{uri}"
    return {**tool, "_meta": meta}


def page_uris(tool: JsonObject) -> list[str]:
    """Return the URIs of the UI resource for a tool's results (MCP Apps), as sent by the server.

    Servers can send the URI under two keys, one of which is deprecated.
    """
    return [uri for uri in (_ui_of(tool).get(_URI), _meta(tool).get(_OLD_KEY)) if isinstance(uri, str)]


def _ui_of(tool: JsonObject) -> JsonObject:
    ui = _meta(tool).get(_UI)
    return ui if isinstance(ui, dict) else {}


def _meta(tool: JsonObject) -> JsonObject:
    meta = tool.get("_meta")
    return meta if isinstance(meta, dict) else {}
