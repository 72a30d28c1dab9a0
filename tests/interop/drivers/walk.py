"""Steps of both official clients: list everything, use everything, and report the results.

Runs in an environment with the client but without this project. The plan contains the server's command or URL, the
arguments of tools and prompts, and the completions to request.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

Progress = Callable[[float, float | None, str | None], Awaitable[None]]
Page = tuple[Sequence[Any], str | None]


class Session(Protocol):
    """The methods that differ between the two versions of the client."""

    async def list_tools(self, cursor: str | None) -> Page: ...
    async def list_resources(self, cursor: str | None) -> Page: ...
    async def list_resource_templates(self, cursor: str | None) -> Page: ...
    async def list_prompts(self, cursor: str | None) -> Page: ...
    async def call_tool(self, name: str, arguments: dict[str, Any], progress: Progress) -> Any: ...
    async def read_resource(self, uri: Any) -> Any: ...
    async def get_prompt(self, name: str, arguments: dict[str, str]) -> Any: ...
    async def complete(self, kind: str, name: str, argument: str, value: str) -> Any: ...


async def walk(session: Session, plan: Any) -> dict[str, Any]:
    """Use everything that the server offers."""
    tools = await _every(session.list_tools)
    resources = await _every(session.list_resources)
    prompts = await _every(session.list_prompts)
    heard: dict[str, list[Any]] = {}

    async def call(name: str) -> Any:
        async def note(value: float, total: float | None, message: str | None) -> None:
            heard.setdefault(name, []).append([value, total, message])

        return _dumped(await session.call_tool(name, plan["arguments"].get(name, {}), note))

    return {
        "tools": [_dumped(tool) for tool in tools],
        "resources": [_dumped(resource) for resource in resources],
        "templates": [_dumped(one) for one in await _every(session.list_resource_templates)],
        "prompts": [_dumped(prompt) for prompt in prompts],
        "calls": {tool.name: await call(tool.name) for tool in tools},
        "progress": heard,
        "reads": {str(one.uri): _dumped(await session.read_resource(one.uri)) for one in resources},
        "more_reads": {uri: _dumped(await session.read_resource(uri)) for uri in plan["uris"]},
        "gets": {
            prompt.name: _dumped(await session.get_prompt(prompt.name, plan["arguments"].get(prompt.name, {})))
            for prompt in prompts
        },
        "completions": [_dumped(await session.complete(*asked)) for asked in plan["completions"]],
    }


async def _every(list_page: Callable[[str | None], Awaitable[Page]]) -> list[Any]:
    items, cursor = await list_page(None)
    items = list(items)
    while cursor is not None:
        more, cursor = await list_page(cursor)
        items += more
    return items


def _dumped(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
