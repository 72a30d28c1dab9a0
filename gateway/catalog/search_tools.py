"""The two tools of a view with `search: true`: `search_tools` finds tools, and `call_tool` calls them.

`call_tool` is rewritten to the named tool before the call is processed. Access, limits, metrics, audit and input
requests therefore see the real name and arguments.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import orjson
from msgspec.structs import replace

from gateway import exact_json
from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import Tool
from gateway.catalog.tool_index import ToolIndex
from gateway.errors import ExecutionError
from gateway.executors.invocation import Explanation, Invocation, Outcome, Value
from gateway.json_types import Json
from gateway.threads import DaemonThreadPool, run_in_thread
from gateway.wire import downgrade
from gateway.wire.jsonrpc import Request

SEARCH_TOOLS: Final = "search_tools"
CALL_TOOL: Final = "call_tool"
OWN_NAMES: Final = (SEARCH_TOOLS, CALL_TOOL)
MAX_FOUND: Final = 50
"""Maximum number of tools in a search result."""


def with_search(
    part: Catalog, *, tools: Mapping[str, Tool], always: re.Pattern[str] | None, threads: DaemonThreadPool
) -> Catalog:
    """Add the two tools, and list only them and the tools that match `always`."""
    listed = [tool for name, tool in part.tools.items() if always is not None and always.match(name)]
    found = SearchExecutor(tuple(filter(_is_for_models, part.tools.values())), threads=threads)
    own = {**tools, SEARCH_TOOLS: replace(tools[SEARCH_TOOLS], executor=found)}
    shown = part.with_listed_tools([*own.values(), *listed])
    return replace(shown, tools={**own, **{name: tool for name, tool in part.tools.items() if name not in own}})


def _is_for_models(tool: Tool) -> bool:
    """Whether models can call the tool (SEP-1865, "Visibility"). The metadata of upstreams is untrusted."""
    match tool.definition.get("_meta"):
        case {"ui": {"visibility": [*whom]}}:
            return "model" in whom
    return True


class SearchExecutor:
    """Searches the tools of one caller's catalog."""

    def __init__(self, tools: Sequence[Tool], *, threads: DaemonThreadPool) -> None:
        self._tools: Final = tools
        self._threads: Final = threads
        self._index: ToolIndex | None = None

    def explain(self, _invocation: Invocation) -> Explanation:
        return Explanation(does="looks for tools", facts={"among": len(self._tools)})

    async def execute(self, invocation: Invocation) -> Outcome:
        query, limit = invocation.arguments["query"], invocation.arguments["limit"]
        ranked = partial(self._ranked, query, limit)
        positions = await run_in_thread(ranked, what="The search", call=invocation, threads=self._threads)
        revision = invocation.context.protocol_version
        return Value(value={"tools": [downgrade.tool(self._tools[each].definition, revision) for each in positions]})

    def _ranked(self, query: str, limit: int) -> Sequence[int]:
        if self._index is None:
            self._index = ToolIndex(tool.definition for tool in self._tools)
        return self._index.ranked(query, limit=limit)


class CallExecutor:
    """Explains why a call of `call_tool` was not rewritten."""

    def explain(self, _invocation: Invocation) -> Explanation:
        return Explanation(does="calls another tool")

    async def execute(self, invocation: Invocation) -> Outcome:
        name = invocation.arguments["name"]
        if name == CALL_TOOL:
            raise ExecutionError(f"`{CALL_TOOL}` cannot call itself. Give it the name of another tool")
        raise ExecutionError(f"`{name}` was not called: its `arguments` must be an object")


def unwrapped(request: Request, catalog: Catalog) -> Request:
    """Rewrite a valid call of `call_tool`. Return other requests unchanged."""
    if catalog.listed_tools is None or request.method != "tools/call" or request.params.get("name") != CALL_TOOL:
        return request
    given = request.params.get("arguments")
    if not isinstance(given, dict) or not given.keys() <= {"name", "arguments"}:
        return request
    name, arguments = given.get("name"), _object(given.get("arguments"))
    if not isinstance(name, str) or name == CALL_TOOL or not isinstance(arguments, dict):
        return request
    return replace(request, params={**request.params, "name": name, "arguments": arguments})


def _object(value: Json) -> Json:
    """Parse a JSON string, which some models send instead of an object. Null means no arguments."""
    if not isinstance(value, str):
        return {} if value is None else value
    try:
        return exact_json.loads(value)
    except orjson.JSONDecodeError:
        return value
