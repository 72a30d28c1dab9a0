"""Pages of lists while upstreams add and remove entries."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from gateway.app.gateway import Gateway
from gateway.errors import RpcError
from gateway.json_types import Json
from gateway.transports.memory import MemoryClient
from tests.upstreams.scripted_server import OBJECT, Answers, ScriptedServer, scripted
from tests.upstreams.test_failures import gateway, until

FILE: Final = "server: {page_size: 2}\ntools: {own: {content: x}}\nviews: {all: {include: {tools: ['*']}}}\n"


def offer(server: ScriptedServer, *names: str) -> None:
    server.answers.update(
        {
            "tools/list": {"tools": [{"name": name, "inputSchema": OBJECT} for name in names]},
            "prompts/list": {"prompts": [{"name": name} for name in names]},
            "resources/list": {"resources": [{"name": name, "uri": f"up://{name}"} for name in names]},
            "resources/templates/list": {
                "resourceTemplates": [{"name": name, "uriTemplate": f"up://{name}/{{x}}"} for name in names]
            },
        }
    )


@asynccontextmanager
async def served(folder: Path, *names: str) -> AsyncIterator[tuple[ScriptedServer, Gateway]]:
    answers: Answers = {kind: {} for kind in ("tools", "prompts", "resources")}
    async with scripted(answers) as (server, entry):
        offer(server, *names)
        path = folder / "config.yaml"
        path.write_text(f"{FILE}upstreams: {{up: {{{entry}, prefix: ''}}}}\n")
        async with gateway(path) as running:
            await running.start()
            await until_tools(running.memory_client(), "own", *names)
            yield server, running


async def change(server: ScriptedServer, running: Gateway, *names: str) -> None:
    offer(server, *names)
    running.app.core.upstreams.servers["up"].reconnect()
    await until_tools(running.memory_client(), "own", *names)


async def until_tools(client: MemoryClient, *names: str) -> None:
    async def are_listed() -> bool:
        return await all_entries(client, "tools/list", "tools") == [*names]

    await until(are_listed)


async def all_entries(client: MemoryClient, method: str, member: str) -> list[str]:
    found: list[str] = []
    given: dict[str, Json] = {}
    while True:
        try:
            page = await client.request(method, given)
        except RpcError:  # the entry at the end of the last page is gone
            found, given = [], {}
            continue
        found.extend(entry["name"] for entry in page[member])
        if "nextCursor" not in page:
            return found
        given = {"cursor": page["nextCursor"]}


@pytest.mark.parametrize(
    ("now", "rest"),
    [
        (("a", "b", "c", "d"), ["b", "c", "d"]),
        (("x", "y", "a", "c"), ["c"]),
        (("c", "a"), []),
        (("a",), []),
    ],
)
async def test_next_page_starts_after_the_last_entry(now: tuple[str, ...], rest: list[str], tmp_path: Path) -> None:
    async with served(tmp_path, "a", "b", "c") as (server, running):
        client = running.memory_client()
        first = await client.request("tools/list")
        assert [tool["name"] for tool in first["tools"]] == ["own", "a"]

        await change(server, running, *now)

        found: list[str] = []
        cursor = first["nextCursor"]
        while cursor is not None:
            page = await client.request("tools/list", {"cursor": cursor})
            found.extend(tool["name"] for tool in page["tools"])
            cursor = page.get("nextCursor")
        assert found == rest


@pytest.mark.parametrize(
    ("method", "member"),
    [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ],
)
async def test_cursor_is_stale_if_its_entry_is_gone(method: str, member: str, tmp_path: Path) -> None:
    async with served(tmp_path, "a", "b", "c") as (server, running):
        client = running.memory_client()
        first = await client.request(method)
        last = first[member][-1]["name"]

        await change(server, running, "a", "b", "c", "d")
        assert (await client.request(method, {"cursor": first["nextCursor"]}))[member]

        await change(server, running, *({"a", "b", "c"} - {last}))
        with pytest.raises(RpcError, match="Stale cursor") as caught:
            await client.request(method, {"cursor": first["nextCursor"]})
        assert caught.value.code == -32602


async def test_reload_that_changes_the_files_own_list_makes_cursors_stale(tmp_path: Path) -> None:
    async with served(tmp_path, "a", "b", "c") as (_, running):
        client = running.memory_client()
        cursor = (await client.request("tools/list"))["nextCursor"]
        path = tmp_path / "config.yaml"
        path.write_text(path.read_text().replace("own:", "other: {content: y}, own:"))
        await running.app.reloads.reload()
        with pytest.raises(RpcError, match="Stale cursor"):
            await client.request("tools/list", {"cursor": cursor})
