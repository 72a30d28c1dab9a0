"""Questions of an upstream reach our client, and its answers the upstream: elicitation, sampling, roots."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from gateway.json_types import Json, JsonObject
from tests.behaviour.cells import Cell
from tests.behaviour.client import Call, Client
from tests.behaviour.conftest import Newcomer
from tests.e2e.daemon import Daemon, serving
from tests.upstreams.upstream_servers import WAYS, Way, reached

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVERYTHING: Final[JsonObject] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
CELLS: Final = [
    Cell(binding="http", revision="2025-11-25"),
    Cell(binding="http", revision="2026-07-28"),
    Cell(binding="sse", revision="2025-06-18"),
]


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=WAYS, ids=str)
async def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Daemon]:
    way: Way = request.param
    path: Path = tmp_path_factory.mktemp(f"asking-{way}") / "config.yaml"
    async with AsyncExitStack() as stack:
        entry = await stack.enter_async_context(reached(way))
        path.write_text(f"upstreams:\n  shelf:\n    {entry}\n", encoding="utf-8")
        yield await stack.enter_async_context(serving(path, "--http", "127.0.0.1:0", "--state-dir", "none"))


async def text(client: Client, tool: str, **arguments: Json) -> str:
    answer = await client.converse("tools/call", {"name": tool, "arguments": arguments})
    return answer.text


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_elicitation_reaches_the_user(cell: Cell, daemon: Daemon, newcomer: Newcomer) -> None:
    client = await newcomer(cell, capabilities=EVERYTHING, daemon=daemon)

    assert (await text(client, "shelf_ask_name")).startswith("hello ")
    assert [question["method"] for question in client.asked] == ["elicitation/create"]


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_sampling_reaches_the_model(cell: Cell, daemon: Daemon, newcomer: Newcomer) -> None:
    client = await newcomer(cell, capabilities=EVERYTHING, daemon=daemon)

    assert await text(client, "shelf_ask_model")
    assert [question["method"] for question in client.asked] == ["sampling/createMessage"]


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_roots_are_told(cell: Cell, daemon: Daemon, newcomer: Newcomer) -> None:
    client = await newcomer(cell, capabilities=EVERYTHING, daemon=daemon)

    assert "file://" in await text(client, "shelf_ask_roots")


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_a_question_of_an_upstream_makes_exactly_one_call_there(
    cell: Cell, daemon: Daemon, newcomer: Newcomer
) -> None:
    client = await newcomer(cell, capabilities=EVERYTHING, daemon=daemon)
    before = int(await text(client, "shelf_times_asked"))

    await text(client, "shelf_ask_name")

    assert int(await text(client, "shelf_times_asked")) - before <= 1


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_a_client_that_goes_away_cancels_upstream(
    cell: Cell, daemon: Daemon, newcomer: Newcomer, tmp_path: Path
) -> None:
    client = await newcomer(cell, capabilities=EVERYTHING, daemon=daemon)
    mark = tmp_path / "mark"
    call = await client.begin("shelf_wait", mark=str(mark))

    async def says(word: str) -> None:
        async with asyncio.timeout(15):
            while not (mark.exists() and mark.read_text() == word):
                await asyncio.sleep(0.02)

    await says("began")
    await client.cancel(call)
    await says("cancelled")


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_a_client_that_cannot_be_asked_is_told_that_the_question_was_declined(
    cell: Cell, daemon: Daemon, newcomer: Newcomer
) -> None:
    client = await newcomer(cell, capabilities={}, daemon=daemon)

    answer = await client.converse("tools/call", {"name": "shelf_ask_name", "arguments": {}})

    assert "elicitation" in str(answer.message)


@pytest.mark.parametrize("cell", CELLS[1:], ids=str)  # those that hear what belongs to no request without more ado
async def test_an_update_of_a_watched_resource_is_relayed(cell: Cell, daemon: Daemon, newcomer: Newcomer) -> None:
    client = await newcomer(cell, capabilities={}, daemon=daemon)
    call: Call | None = None
    if cell.is_modern:
        call = await client.start("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note://one"]}})
    else:
        await client.ask("resources/subscribe", {"uri": "note://one"})

    updated = "notifications/resources/updated"
    told = asyncio.ensure_future(call.notification(updated) if call is not None else client.hear(updated))
    async with asyncio.timeout(15):
        while not told.done():  # until the upstream is asked to tell
            await client.call("shelf_touch", uri="note://one")
            await asyncio.wait([told], timeout=0.2)
    assert (await told)["uri"] == "note://one"
