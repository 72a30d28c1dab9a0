"""Rate and concurrency limits: the errors that a client gets, and their independence of other clients."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import pytest_asyncio

from gateway.json_types import JsonObject
from tests.behaviour.cells import HTTP, LATEST, STDIO, Cell, cells
from tests.behaviour.client import SECONDS, Answer, Client
from tests.behaviour.conftest import NewClient
from tests.behaviour.daemons import serving
from tests.e2e.daemon import Daemon
from tests.protocol.peers import EVERYTHING
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONFIG: Final = Path(__file__).parent / "testdata" / "limits.yaml"
TOO_MANY: Final = 429


@pytest.fixture(scope="session")
def listening() -> dict[Cell, Daemon]:
    """The shared daemons by cell. Tests use different tools, because their calls count until the period ends."""
    return {}


@pytest_asyncio.fixture(loop_scope="session")
async def daemon(cell: Cell, listening: dict[Cell, Daemon], processes: AsyncExitStack) -> AsyncIterator[Daemon]:
    if cell.binding == STDIO:
        async with serving(CONFIG, "--stdio") as daemon:
            yield daemon
        return
    if cell not in listening:
        listening[cell] = await processes.enter_async_context(serving(CONFIG))
    yield listening[cell]


@pytest_asyncio.fixture(loop_scope="session")
async def limited(cell: Cell, daemon: Daemon, new_client: NewClient) -> Client:
    return await new_client(cell, capabilities=EVERYTHING, daemon=daemon)


def refusal(key: str, rate: str, whose: str = "for one caller") -> str:
    return f"Called too often: at most {rate} {whose} ({key}). Try again in "


def assert_refused(answer: Answer, text: str, cell: Cell) -> None:
    """Check the JSON-RPC error of a request other than a tool call."""
    assert answer.error["code"] == TOO_MANY
    assert answer.error["message"].startswith(text)
    assert 0 < answer.error["data"]["retryAfterSeconds"] <= 2 * 3600
    assert answer.status in {None, TOO_MANY if cell.is_modern and cell.is_http else 200}


@cells()
async def test_rate_limited_tool_returns_when_to_retry(limited: Client) -> None:
    answers = [await limited.call("seldom") for _ in range(3)]
    assert [answer.result.get("isError", False) for answer in answers] == [False, False, True]
    assert answers[2].text.startswith(refusal("tools.seldom.rate_limit", "2/hour"))
    assert (await limited.call("free")).text == "free"


@cells()
async def test_resources_and_prompts_have_separate_rate_limits(limited: Client, cell: Cell) -> None:
    read: JsonObject = {"uri": "note://once"}
    assert (await limited.ask("resources/read", read)).result["contents"][0]["text"] == "noted"
    assert_refused(await limited.ask("resources/read", read), refusal("resources.note.rate_limit", "1/hour"), cell)
    for _ in range(2):
        assert (await limited.ask("prompts/get", {"name": "greet"})).result["messages"]
    everybody = refusal("prompts.greet.rate_limit", "2/hour", "for all callers together")
    assert_refused(await limited.ask("prompts/get", {"name": "greet"}), everybody, cell)
    for _ in range(3):  # lists and completions do not count as calls
        await limited.ask("prompts/list")
        await limited.ask(
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "a"}},
        )
    assert (await limited.ask("resources/read", {"uri": "note://open"})).result["contents"]


@cells(since="2025-06-18")
async def test_confirmed_call_counts_once(limited: Client) -> None:
    first = await limited.converse("tools/call", {"name": "asked", "arguments": {}})
    assert first.text == "sure"
    again = await limited.converse("tools/call", {"name": "asked", "arguments": {}})
    assert again.text.startswith(refusal("tools.asked.rate_limit", "1/hour"))
    assert len(limited.asked) == 1


@cells()
async def test_resource_read_by_a_tool_is_counted_without_a_second_permit(limited: Client) -> None:
    assert (await limited.call("embed", uri="note://read")).text == "read"
    refused = refusal("resources.read.rate_limit", "1/hour")
    assert (await limited.call("embed", uri="note://read")).text.startswith(refused)


@cells()
async def test_calls_of_one_caller_wait_and_excess_is_rejected(limited: Client, tmp_path: Path) -> None:
    running = await limited.begin("wait", file=str(tmp_path / "go"))
    await until((tmp_path / "go.began").exists)
    busy = "Too many concurrent calls: 1 running, 1 waiting (limits.concurrency, per_caller). Try again in 1 s."
    calls = [(await limited.begin("free")).answered for _ in range(3)]
    async with asyncio.timeout(SECONDS):
        refused = [(await first).text for first in itertools.islice(asyncio.as_completed(calls), 2)]
    assert refused == [busy, busy]
    [waiting] = [call for call in calls if not call.done()]  # with replicas, any of them can come first
    (tmp_path / "go").touch()
    assert (await running.answer()).text == "done\n"
    async with asyncio.timeout(SECONDS):
        assert (await waiting).text == "free"


@cells(since=LATEST, binding=HTTP)
async def test_retry_after_header_is_sent(daemon: Daemon, http: aiohttp.ClientSession, cell: Cell) -> None:
    fields = {
        "MCP-Protocol-Version": cell.revision,
        "Mcp-Method": "resources/read",
        "Mcp-Name": "note://header",
        "Accept": "application/json, text/event-stream",
    }
    meta = {
        "io.modelcontextprotocol/protocolVersion": cell.revision,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "note://header", "_meta": meta}}
    for status in (200, TOO_MANY):
        async with http.post(await daemon.url(), json=body, headers=fields) as response:
            assert response.status == status
    assert 0 < int(response.headers["Retry-After"]) <= 2 * 3600
