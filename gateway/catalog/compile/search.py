"""Compiles the `search` of a view: the definitions of its two tools."""

import re
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from gateway.catalog.compile.context import CompileContext
from gateway.catalog.compile.tools import compile_tool
from gateway.catalog.primitives import EVERYBODY, Tool
from gateway.catalog.search_tools import CALL_TOOL, MAX_FOUND, SEARCH_TOOLS, CallExecutor, Search, SearchExecutor
from gateway.config.diagnostics.problems import Problems
from gateway.config.models import definitions as models
from gateway.config.models.definition_keys import Output
from gateway.executors.invocation import Executor
from gateway.executors.output.compiler import compile_output
from gateway.executors.output.result_shaper import OutputTraits
from gateway.json_types import JsonObject
from gateway.language.scope import Inputs, Scope

_MAX_RESULT: Final = 2 * 2**20
"""Bytes of the definitions that one search brings."""
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
        "query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "Words for what is to be done."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_FOUND,
            "default": 5,
            "description": "How many tools are returned at the most.",
        },
    },
    "content": [{"text": "{{ query }} {{ limit }}"}],
}
"""As in a file. The content is replaced by an executor: it stands for a backend that uses the inputs."""
_CALL: Final[JsonObject] = {
    "title": "Call a tool",
    "description": "Calls a tool that `search_tools` found, with arguments that fit its `inputSchema`.",
    "input": {
        "name": {"type": "string", "minLength": 1, "description": "The tool's name."},
        "arguments": {"type": "object", "default": {}, "description": "The tool's arguments."},
    },
    "content": [{"text": "{{ name }} {{ arguments }}"}],
}


def compile_search(*, always: re.Pattern[str] | None, context: CompileContext, problems: Problems) -> Search:
    """Compile the two tools; `problems` is at the view's `search`."""
    threads = context.services.worker_threads
    search = _compiled(SEARCH_TOOLS, _SEARCH, SearchExecutor((), threads=threads), context, problems)
    found = Output(format="json", schema=dict(_FOUND), max_size=_MAX_RESULT)
    shape = compile_output(
        found,
        traits=OutputTraits(),
        scope=Scope(inputs=Inputs(), problems=problems),
        redactor=context.redactor,
        output_store=context.services.output_store,
        overflows=context.services.overflows,
        mismatches=context.services.mismatches,
    )
    search = replace(search, definition={**search.definition, "outputSchema": _FOUND}, result=shape)
    call = _compiled(CALL_TOOL, _CALL, CallExecutor(), context, problems)
    tools: Mapping[str, Tool] = {SEARCH_TOOLS: search, CALL_TOOL: call}
    return Search(tools=tools, always=always, threads=threads)


def _compiled(
    name: str, definition: JsonObject, executor: Executor, context: CompileContext, problems: Problems
) -> Tool:
    config = models.Tool.model_validate(definition)
    tool = compile_tool(name, config, problems=problems, context=context)
    assert tool is not None  # noqa: S101 - only a function can be missing
    return replace(tool, executor=executor, access=EVERYBODY)
