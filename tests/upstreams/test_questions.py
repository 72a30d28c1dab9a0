"""Elicitation, sampling and roots requests of upstreams."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from gateway.json_types import Json, JsonObject
from tests.behaviour.cells import Cell
from tests.behaviour.client import Call, Client
from tests.behaviour.conftest import NewClient
from tests.e2e.daemon import Daemon, serving
from tests.upstreams.test_failures import odd
from tests.upstreams.upstream_servers import DIALECTS, Dialect, over_stdio, reached, until_offered
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVERYTHING: Final[JsonObject] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
TASKS: Final = "io.modelcontextprotocol/tasks"
MODERN: Final = Cell(binding="http", revision="2026-07-28")
CELLS: Final = [
    Cell(binding="http", revision="2025-11-25"),
    MODERN,
    Cell(binding="sse", revision="2025-06-18"),
]


@pytest.fixture(scope="session", params=DIALECTS, ids=str)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    found: Dialect = request.param
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def daemon(dialect: Dialect, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Daemon]:
    path: Path = tmp_path_factory.mktemp(f"asking-{dialect}") / "config.yaml"
    async with AsyncExitStack() as stack:
        entry = await stack.enter_async_context(reached(dialect))
        path.write_text(f"upstreams:\n  shelf:\n    {entry}\n", encoding="utf-8")
        daemon = await stack.enter_async_context(serving(path, "--http", "127.0.0.1:0", "--state-dir", "none"))
        await until_offered(daemon, "shelf_echo")
        yield daemon


async def text(client: Client, tool: str, **arguments: Json) -> str:
    answer = await client.converse("tools/call", {"name": tool, "arguments": arguments})
    return answer.text


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_elicitation_reaches_the_user(cell: Cell, daemon: Daemon, new_client: NewClient) -> None:
    client = await new_client(cell, capabilities=EVERYTHING, daemon=daemon)

    assert (await text(client, "shelf_ask_name")).startswith("hello ")
    assert [question["method"] for question in client.asked] == ["elicitation/create"]


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_sampling_reaches_the_model(cell: Cell, daemon: Daemon, new_client: NewClient) -> None:
    client = await new_client(cell, capabilities=EVERYTHING, daemon=daemon)

    assert await text(client, "shelf_ask_model")
    assert [question["method"] for question in client.asked] == ["sampling/createMessage"]


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_roots_reach_the_upstream(cell: Cell, daemon: Daemon, new_client: NewClient) -> None:
    client = await new_client(cell, capabilities=EVERYTHING, daemon=daemon)

    assert "file://" in await text(client, "shelf_ask_roots")


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_question_of_a_legacy_upstream_causes_one_call(
    cell: Cell, dialect: Dialect, daemon: Daemon, new_client: NewClient
) -> None:
    client = await new_client(cell, capabilities=EVERYTHING, daemon=daemon)
    before = int(await text(client, "shelf_times_asked"))

    await text(client, "shelf_ask_name")

    # A modern server asks with the result of a call, so the answer needs another call.
    assert int(await text(client, "shelf_times_asked")) - before == (1 if dialect.era == "legacy" else 2)


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_disconnect_of_the_client_cancels_the_call(
    cell: Cell, daemon: Daemon, new_client: NewClient, tmp_path: Path
) -> None:
    client = await new_client(cell, capabilities=EVERYTHING, daemon=daemon)
    mark = tmp_path / "mark"
    call = await client.begin("shelf_wait", mark=str(mark))

    async def says(word: str) -> None:
        await until(lambda: mark.exists() and mark.read_text() == word)

    await says("began")
    await client.cancel(call)
    await says("cancelled")


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_declined_question_is_reported_to_the_client(cell: Cell, daemon: Daemon, new_client: NewClient) -> None:
    client = await new_client(cell, capabilities={}, daemon=daemon)

    answer = await client.converse("tools/call", {"name": "shelf_ask_name", "arguments": {}})

    assert "elicitation" in str(answer.message)


@pytest.mark.parametrize("cell", CELLS[1:], ids=str)  # cells with an open stream for notifications
async def test_update_of_watched_resource_is_relayed(cell: Cell, daemon: Daemon, new_client: NewClient) -> None:
    client = await new_client(cell, capabilities={}, daemon=daemon)
    call: Call | None = None
    if cell.is_modern:
        call = await client.start("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note://one"]}})
    else:
        await client.ask("resources/subscribe", {"uri": "note://one"})

    updated = "notifications/resources/updated"
    if call is not None:
        await call.notification("notifications/subscriptions/acknowledged")
    await client.call("shelf_touch", uri="note://one")  # once, because the acknowledged subscription is active

    async with asyncio.timeout(30):
        told = await (call.notification(updated) if call is not None else client.notification(updated))
    assert told["uri"] == "note://one"


@pytest.mark.parametrize("dialect", [each for each in DIALECTS if each.era == "legacy"], ids=str, indirect=True)
async def test_call_with_a_question_becomes_a_task(dialect: Dialect, daemon: Daemon, new_client: NewClient) -> None:
    client = await new_client(MODERN, capabilities={**EVERYTHING, "extensions": {TASKS: {}}}, daemon=daemon)
    before = int(await text(client, "shelf_times_asked"))  # asks no question

    task = (await client.call("shelf_ask_name")).result
    waiting = (await client.ask("tasks/get", {"taskId": task["taskId"]})).result
    [(key, question)] = waiting["inputRequests"].items()
    answer = client.respond(question["method"], question["params"])
    await client.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": {key: answer}})

    async with asyncio.timeout(30):
        while (ended := (await client.ask("tasks/get", {"taskId": task["taskId"]})).result)["status"] == "working":
            await asyncio.sleep(0.02)
    assert (task["resultType"], waiting["status"], ended["status"]) == ("task", "input_required", "completed")
    assert ended["result"]["content"][0]["text"].startswith("hello ")
    assert int(await text(client, "shelf_times_asked")) - before == 1


@pytest.mark.parametrize("dialect", [each for each in DIALECTS if each.era == "legacy"], ids=str, indirect=True)
async def test_cancelled_task_cancels_the_upstream_call(
    dialect: Dialect, daemon: Daemon, new_client: NewClient, tmp_path: Path
) -> None:
    client = await new_client(MODERN, capabilities={**EVERYTHING, "extensions": {TASKS: {}}}, daemon=daemon)
    mark = tmp_path / "mark"
    task = (await client.call("shelf_ask_name", mark=str(mark))).result
    assert (await client.ask("tasks/get", {"taskId": task["taskId"]})).result["status"] == "input_required"

    await client.ask("tasks/cancel", {"taskId": task["taskId"]})

    await until(lambda: mark.exists() and mark.read_text() == "cancelled")


@asynccontextmanager
async def daemon_for_one_call(folder: Path, more: str = "") -> AsyncIterator[Daemon]:
    """Yield a daemon whose upstream allows one concurrent call."""
    entry = f"{over_stdio(era='legacy')}\n    concurrency: 1\n    queue: 0\n    {more}"
    path = folder / "config.yaml"
    path.write_text(f"upstreams:\n  shelf:\n    {entry}\n", encoding="utf-8")
    async with serving(path, "--http", "127.0.0.1:0", "--state-dir", "none") as daemon:
        await until_offered(daemon, "shelf_echo")
        yield daemon


def retry(client: Client, asked: JsonObject) -> dict[str, Json]:
    """Return the parameters of the retry with the answers."""
    answers = {key: client.respond(each["method"], each["params"]) for key, each in asked["inputRequests"].items()}
    return {"name": "shelf_ask_name", "arguments": {}, "inputResponses": answers, "requestState": asked["requestState"]}


async def test_parked_call_frees_its_permit_and_takes_one_answer(
    tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    daemon = await processes.enter_async_context(daemon_for_one_call(tmp_path))
    client = await new_client(MODERN, capabilities=EVERYTHING, daemon=daemon)
    asked = (await client.call("shelf_ask_name")).result

    assert await text(client, "shelf_echo", text="meanwhile") == "meanwhile"
    assert (await client.ask("tools/call", retry(client, asked))).text.startswith("hello ")
    again = (await client.ask("tools/call", retry(client, asked))).result
    assert (again["isError"], "no longer exists" in again["content"][0]["text"]) == (True, True)


async def test_unanswered_parked_call_expires(tmp_path: Path, processes: AsyncExitStack, new_client: NewClient) -> None:
    override = "tools: {override: {ask_name: {ask_timeout: 100ms}}}"
    daemon = await processes.enter_async_context(daemon_for_one_call(tmp_path, override))
    client = await new_client(MODERN, capabilities=EVERYTHING, daemon=daemon)
    mark = tmp_path / "mark"
    asked = (await client.call("shelf_ask_name", mark=str(mark))).result

    await until(lambda: mark.exists() and mark.read_text() == "cancelled")

    params = {**retry(client, asked), "arguments": {"mark": str(mark)}}
    assert "no longer exists" in (await client.ask("tools/call", params)).text


async def test_open_question_frees_the_permit_of_its_call(
    tmp_path: Path, processes: AsyncExitStack, new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = await processes.enter_async_context(daemon_for_one_call(tmp_path))
    client = await new_client(CELLS[0], capabilities=EVERYTHING, daemon=daemon)
    open_questions: asyncio.Queue[JsonObject] = asyncio.Queue()
    answer = client._reply_to
    monkeypatch.setattr(client, "_reply_to", open_questions.put_nowait)
    call = await client.begin("shelf_ask_name")
    async with asyncio.timeout(30):
        question = await open_questions.get()

    assert await text(client, "shelf_echo", text="meanwhile") == "meanwhile"
    answer(question)
    assert (await call.answer()).text.startswith("hello ")


@pytest.mark.parametrize("cell", CELLS[:2], ids=str)
async def test_disabled_question_is_declined_with_a_note(
    cell: Cell, tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    keys = "elicitation: false\n    sampling: true"
    daemon = await processes.enter_async_context(daemon_for_one_call(tmp_path, keys))
    client = await new_client(cell, capabilities=EVERYTHING, daemon=daemon)

    refused = str((await client.converse("tools/call", {"name": "shelf_ask_name", "arguments": {}})).message)
    assert await text(client, "shelf_ask_model")

    assert "elicitation" in refused
    assert [question["method"] for question in client.asked] == ["sampling/createMessage"]


@pytest.mark.parametrize("tool", ["odd_ask_url", "odd_refer"])
async def test_completed_url_elicitation_is_announced(
    tool: str, tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"upstreams: {{odd: {{{odd('ask_url')}}}}}\n", encoding="utf-8")
    daemon = await processes.enter_async_context(serving(config, "--http", "127.0.0.1:0", "--state-dir", "none"))
    capabilities: JsonObject = {"elicitation": {"url": {}}}
    cell = Cell(binding="sse", revision="2025-11-25")
    other, client = [await new_client(cell, capabilities=capabilities, daemon=daemon) for _ in range(2)]

    answer = await client.call(tool)
    done = await client.notification("notifications/elicitation/complete")

    known = [question["params"] for question in client.asked] or answer.error["data"]["elicitations"]
    assert [each["elicitationId"] for each in known] == [done["elicitationId"]] == ["e"]
    assert other.received("notifications/elicitation/complete") == []


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_roots_requested_outside_of_calls_are_those_of_the_caller(
    cell: Cell, tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    command = [sys.executable, "-IS", str(Path(__file__).parent / "testdata" / "rooted_server.py")]
    config = tmp_path / "config.yaml"
    config.write_text(f"upstreams: {{rooted: {{command: {command}}}}}\n", encoding="utf-8")
    daemon = await processes.enter_async_context(serving(config, "--http", "127.0.0.1:0", "--state-dir", "none"))
    await until_offered(daemon, "rooted_where")
    client = await new_client(cell, capabilities={"roots": {}}, daemon=daemon)

    assert (await text(client, "rooted_where")).startswith("file://")
    assert [question["method"] for question in client.asked] == ["roots/list"]
    assert (await text(client, "rooted_where")).startswith("file://")
    assert len(client.asked) == 1
    if not cell.is_modern:
        stranger = await new_client(cell, daemon=daemon)
        assert await text(stranger, "rooted_where") == "none"
