"""Compiles `views:`, and the two tools of views with `search`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from functools import partial
from typing import Final

from msgspec.structs import replace

from gateway.catalog.catalog import AddSearch, Selection, View, names_of
from gateway.catalog.compile.backends import fixed
from gateway.catalog.compile.context import CompileContext, mask_text
from gateway.catalog.compile.tools import compile_tool
from gateway.catalog.primitives import EVERYBODY, Primitive, RequiredScopes, Tool
from gateway.catalog.search_tools import (
    CALL_TOOL,
    MAX_FOUND,
    OWN_NAMES,
    SEARCH_TOOLS,
    refuse_call,
    with_search,
)
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.models import definitions
from gateway.config.models.definition_keys import Output
from gateway.config.models.document import LISTS
from gateway.config.models.document import Selection as WrittenSelection
from gateway.config.models.document import View as WrittenView
from gateway.executors.invocation import Explanation
from gateway.executors.output.compiler import compile_output
from gateway.executors.output.result_shaper import OutputTraits
from gateway.json_types import JsonObject
from gateway.language.scope import Inputs, Scope
from gateway.plugin import ListKind

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
"""Valid names of views: path segments that clients and proxies do not rewrite."""
_CARD: Final = "server-card"
"""The path segment that SEP-2127 reserves under an MCP endpoint."""
_RESERVED: Final = frozenset({"sse", "messages", "metrics", "-"})
"""Paths that the daemon itself serves if `listen.path` is `/`."""


def compile_views(
    loaded: LoadedConfig, primitives: Sequence[Primitive], *, context: CompileContext, problems: Problems
) -> Mapping[str, View]:
    """Compile every view. Warn about globs and tags that match none of the `primitives`."""
    is_at_root = loaded.document.listen.path == "/"
    views: dict[str, View] = {}
    for name, config in loaded.document.views.items():
        place = problems.at(name)
        if _NAME.fullmatch(name) is None:
            place.error("a view's name must have 1 to 64 of the characters A-Z a-z 0-9 _ . -, and not start with `.`")
        elif is_at_root and name in _RESERVED:
            place.error(f"`/{name}` is reserved for the daemon. Choose another name, or another `listen.path`")
        elif name == _CARD and loaded.document.listen.public_url is not None:
            place.error("`listen.public_url` reserves this path for the server card. Choose another name")
        if config.access is not None and not context.has_callers:
            place.at("access").error("requires `auth`: without it, callers have no scopes")
        views[name] = View(
            name=name,
            include=_compile_selection(config.include),
            exclude=_compile_selection(config.exclude),
            instructions=mask_text(config.instructions, redactor=loaded.redactor, problems=place.at("instructions")),
            access=_access(config),
            add_search=_compile_search(config, context=context, problems=place.at("search")) if config.search else None,
        )
        if config.search:
            _check_own_names(views[name], primitives, problems=place.at("search"))
        # Globs may match nothing because of an error, or because an upstream's list is not known yet.
        if not problems.root.has_errors and not loaded.document.upstreams:
            _warn_of_misfits(config, primitives, place)
    return views


def _check_own_names(view: View, primitives: Sequence[Primitive], *, problems: Problems) -> None:
    for each in primitives:
        names = {each.name, *each.aliases} & set(OWN_NAMES)
        if isinstance(each, Tool) and names and view.holds("tools", tags=each.tags, names=[each.name]):
            problems.error(f"exclude `tools.{each.name}` from this view: `search` adds a tool with the same name")


def _access(config: WrittenView) -> RequiredScopes:
    if config.access is None:
        return EVERYBODY
    return RequiredScopes(scopes=frozenset(config.access.scopes), is_visible=config.access.visible)


def _compile_selection(config: WrittenSelection | None) -> Selection | None:
    if config is None:
        return None
    globs: dict[ListKind, list[str]] = {"tools": config.tools, "resources": config.resources, "prompts": config.prompts}
    patterns = {kind: any_of(written) for kind, written in globs.items() if written}
    selected = frozenset(config.tags)

    def selects(kind: ListKind, tags: Iterable[str], names: Iterable[str]) -> bool:
        pattern = patterns.get(kind)
        return not selected.isdisjoint(tags) or (pattern is not None and any(map(pattern.match, names)))

    return selects


def any_of(globs: Iterable[str]) -> re.Pattern[str]:
    """Return a case-sensitive pattern that matches any of the globs."""
    return re.compile("|".join(map(translate, globs)))


def _warn_of_misfits(config: WrittenView, primitives: Sequence[Primitive], problems: Problems) -> None:
    names = {kind: [name for each in primitives if each.kind == kind for name in names_of(each)] for kind in LISTS}
    tags = {tag for each in primitives for tag in each.tags}
    for key, selection in (("include", config.include), ("exclude", config.exclude)):
        if selection is None:
            continue
        place = problems.at(key)
        for index, tag in enumerate(selection.tags):
            if tag not in tags:
                place.at("tags", index).warning(f"no definition has the tag `{tag}`")
        for kind in LISTS:
            _warn_of_globs(getattr(selection, kind), names[kind], place.at(kind), what=kind)
    _warn_of_globs(config.always, names["tools"], problems.at("always"), what="tools")


def _warn_of_globs(globs: Sequence[str], names: Sequence[str], problems: Problems, *, what: str) -> None:
    for index, glob in enumerate(globs):
        pattern = any_of([glob])
        if not any(map(pattern.match, names)):
            problems.at(index).warning(f"matches none of the {what}")


_MAX_RESULT: Final = 2 * 2**20
"""Maximum size of a search result, in bytes."""
_FOUND: Final[JsonObject] = {
    "type": "object",
    "properties": {"tools": {"type": "array", "items": {"type": "object"}, "description": "The best first."}},
    "required": ["tools"],
}
_SEARCH: Final[JsonObject] = {
    "title": "Search tools",
    "description": (
        "Finds tools by what they do. Returns their full definitions, the best first; call one with `call_tool`, or by "
        "its name. Search again with other words if nothing fits."
    ),
    "annotations": {"read_only": True, "idempotent": True, "open_world": False},
    "input": {
        "query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "Words that describe the task."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_FOUND,
            "default": 5,
            "description": "Maximum number of tools to return.",
        },
    },
    "content": [{"text": "{{ query }} {{ limit }}"}],
}
"""`search_tools` in the format of configuration files. `content` is a placeholder that `with_search` replaces."""
_CALL: Final[JsonObject] = {
    "title": "Call a tool",
    "description": "Calls a tool that `search_tools` found, with arguments that fit its `inputSchema`.",
    "input": {
        "name": {"type": "string", "minLength": 1, "description": "The tool's name."},
        "arguments": {"type": "object", "default": {}, "description": "The tool's arguments."},
    },
    "content": [{"text": "{{ name }} {{ arguments }}"}],
}


def _compile_search(config: WrittenView, *, context: CompileContext, problems: Problems) -> AddSearch:
    search = _compiled(SEARCH_TOOLS, _SEARCH, context, problems)
    found = Output(format="json", schema=dict(_FOUND), max_size=_MAX_RESULT)
    shape = compile_output(
        found,
        traits=OutputTraits(),
        scope=Scope(inputs=Inputs(), problems=problems),
        redactor=context.redactor,
        output_store=context.services.output_store,
        counters=context.services.output_counters,
    )
    search = replace(search, definition={**search.definition, "outputSchema": _FOUND}, result=shape.shape)
    call = _compiled(CALL_TOOL, _CALL, context, problems)
    call = replace(call, executor=fixed(refuse_call, Explanation(does="calls another tool")))
    tools: Mapping[str, Tool] = {SEARCH_TOOLS: search, CALL_TOOL: call}
    always = any_of(config.always) if config.always else None
    return partial(with_search, tools=tools, always=always, threads=context.services.worker_threads)


def _compiled(name: str, definition: JsonObject, context: CompileContext, problems: Problems) -> Tool:
    config = definitions.Tool.model_validate(definition)
    tool = compile_tool(name, config, problems=problems, context=context)
    assert tool is not None  # noqa: S101 - only a tool with a Python function can fail to compile
    # No further scopes are needed: the view admits the caller, and a search finds only visible tools.
    return replace(tool, access=EVERYBODY)
