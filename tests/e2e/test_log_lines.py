"""Every log line of a call has the same id, and the level can be changed while the daemon runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

import aiohttp
import orjson
import pytest
import pytest_asyncio

from gateway.json_types import Json
from tests.e2e.daemon import Daemon, call, post_call, serving, text_of
from tests.messages import legacy_request, modern_request, open_session
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRACE_ID: Final = "0af7651916cd43dd8448eb211c80319c"
SECONDS: Final = 15
FILE: Final = """
listen: {http: "127.0.0.1:0"}
plugins: [plugins]
tools:
  on_loop: {python: "talkative:on_loop"}
  in_thread: {python: "talkative:in_thread"}
  breaks: {python: "talkative:breaks"}
"""
PLUGIN: Final = '''
import asyncio
import logging
import structlog

async def on_loop(word: str) -> str:
    """Log, and let a task log."""
    structlog.get_logger().info("author", word=word)
    await asyncio.create_task(aside(word))
    return word

async def aside(word: str) -> None:
    logging.getLogger("author").info("author in a task: %s", word)

def in_thread(word: str) -> str:
    """Log in a thread, by either way."""
    structlog.get_logger().info("author", word=word)
    logging.getLogger("author").info("author in a thread: %s", word)
    return word

def breaks() -> str:
    """Raise."""
    raise RuntimeError("broken")
'''


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talkative")
    (folder / "plugins").mkdir()
    (folder / "plugins" / "talkative.py").write_text(PLUGIN)
    (folder / "config.yaml").write_text(FILE)
    return folder / "config.yaml"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def process(config: Path) -> AsyncIterator[Daemon]:
    async with serving(config) as daemon:
        yield daemon


@pytest_asyncio.fixture(loop_scope="session")
async def daemon(process: Daemon, http: aiohttp.ClientSession) -> Daemon:
    """A daemon at log level info, without log lines of earlier tests."""
    await process.event("listening")
    await set_level(process, http, "info")
    await until(lambda: "log level changed" in process.errors[-1])
    process.errors[:] = [line for line in process.errors if '"listening"' in line]
    return process


@pytest_asyncio.fixture(loop_scope="session")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as http:
        yield http


def lines(daemon: Daemon) -> list[Json]:
    found = []
    for line in daemon.errors:
        with suppress(orjson.JSONDecodeError):
            found.append(orjson.loads(line))
    return found


async def lines_with(daemon: Daemon, word: str, count: int) -> list[Json]:
    """Wait for this number of log lines with a word, and return them."""
    async with asyncio.timeout(SECONDS):
        while len(found := [line for line in lines(daemon) if word in str(line)]) < count:
            await asyncio.sleep(0.01)
    return found


async def set_level(daemon: Daemon, http: aiohttp.ClientSession, level: str) -> int:
    url = urljoin(await daemon.url(), "/-/log-level")
    async with http.post(url, params={"level": level}) as response:
        await response.read()
        return response.status


@pytest.mark.parametrize("tool", ["on_loop", "in_thread"])
async def test_plugin_log_has_the_call_id(daemon: Daemon, http: aiohttp.ClientSession, tool: str) -> None:
    url = await daemon.url()
    words = [f"word-{number}" for number in range(5)]
    await asyncio.gather(*(post_call(http, url, tool, word=word) for word in words))
    ids = []
    for word in words:
        first, second = await lines_with(daemon, word, 2)
        assert first["call"] == second["call"]
        ids.append(first["call"])
    assert len(set(ids)) == len(words)


async def test_log_lines_of_a_traced_call_have_the_trace_id(daemon: Daemon, http: aiohttp.ClientSession) -> None:
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "in_thread"}
    fields = {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}
    message = modern_request("tools/call", {"name": "in_thread", "arguments": {"word": "traced"}, "_meta": fields})
    async with http.post(await daemon.url(), json=message, headers=headers) as response:
        assert response.status == 200
    await post_call(http, await daemon.url(), "in_thread", word="alone")
    assert {line.get("trace_id") for line in await lines_with(daemon, "traced", 2)} == {TRACE_ID}
    assert {line.get("trace_id") for line in await lines_with(daemon, "alone", 2)} == {None}


async def test_lines_outside_calls_have_no_id(daemon: Daemon, http: aiohttp.ClientSession) -> None:
    await post_call(http, await daemon.url(), "in_thread", word="over")
    await set_level(daemon, http, "info")
    changed = await daemon.event("log level changed")
    assert (changed["level"], changed["now"], changed["before"]) == ("warning", "info", "info")
    assert "call" not in changed
    assert "call" not in await daemon.event("listening")


async def test_debug_messages_have_the_call_id(daemon: Daemon, http: aiohttp.ClientSession) -> None:
    assert await set_level(daemon, http, "debug") == 200
    await post_call(http, await daemon.url(), "in_thread", word="seen")
    found = await lines_with(daemon, "seen", 4)
    assert [line["event"] for line in found] == [
        "message received",
        "author",
        "author in a thread: seen",
        "message sent",
    ]
    assert len({line["call"] for line in found}) == 1


async def test_batch_requests_have_separate_ids(daemon: Daemon, http: aiohttp.ClientSession) -> None:
    url = await daemon.url()
    await set_level(daemon, http, "debug")
    session = await open_session(http, url, "2025-03-26")
    words = {number: {"word": f"batched-{number}"} for number in (1, 2)}
    batch = [
        legacy_request("tools/call", {"name": "in_thread", "arguments": word}, request_id=number)
        for number, word in words.items()
    ]
    async with http.post(url, json=batch, headers=session) as response:
        assert len(await response.json()) == 2
    of_each = [
        [line["call"] for line in await lines_with(daemon, f"author in a thread: batched-{n}", 1)] for n in (1, 2)
    ]
    assert of_each[0] != of_each[1]


async def test_log_level_changes_at_run_time(daemon: Daemon, http: aiohttp.ClientSession) -> None:
    url = await daemon.url()
    await post_call(http, url, "in_thread", word="quiet")
    assert await set_level(daemon, http, "debug") == 200
    await post_call(http, url, "in_thread", word="loud")
    assert await set_level(daemon, http, "error") == 200
    await post_call(http, url, "in_thread", word="silent")
    assert await set_level(daemon, http, "info") == 200
    await post_call(http, url, "in_thread", word="again")
    await lines_with(daemon, "author in a thread: again", 1)
    events = [line["event"] for line in lines(daemon)]
    assert events.count("message received") == 1
    assert not [event for event in events if "silent" in event]
    async with http.get(urljoin(url, "/-/log-level")) as response:
        assert await response.json() == {"level": "info"}


async def test_debug_level_of_one_package_logs_its_messages(daemon: Daemon, http: aiohttp.ClientSession) -> None:
    url = await daemon.url()
    assert await set_level(daemon, http, "protocol=debug") == 200
    async with http.get(urljoin(url, "/-/log-level")) as response:
        assert await response.json() == {"level": "info", "packages": {"protocol": "debug"}}
    await post_call(http, url, "in_thread", word="loud")
    await daemon.event("message received")
    assert await set_level(daemon, http, "info") == 200
    await post_call(http, url, "in_thread", word="again")
    await lines_with(daemon, "author in a thread: again", 1)
    assert [line["event"] for line in lines(daemon)].count("message received") == 1


@pytest.mark.parametrize("level", ["", "loud", "INFO"])
async def test_unknown_log_level_is_rejected(daemon: Daemon, http: aiohttp.ClientSession, level: str) -> None:
    url = urljoin(await daemon.url(), "/-/log-level")
    async with http.post(url, params={"level": level}) as response:
        assert response.status == 400
        assert (await response.json())["error"].startswith("level: expected one of debug, info, warning, error")


async def test_only_operators_can_change_the_log_level(daemon: Daemon, http: aiohttp.ClientSession) -> None:
    url = urljoin(await daemon.url(), "/-/log-level?level=debug")
    for headers in ({"X-Forwarded-For": "203.0.113.9"}, {"Origin": "http://localhost:1"}):
        async with http.post(url, headers=headers) as response:
            assert response.status == 404
    async with http.get(urljoin(url, "/-/log-level")) as response:
        assert await response.json() == {"level": "info"}


async def test_exception_is_logged_with_the_call_id(daemon: Daemon, http: aiohttp.ClientSession) -> None:
    answer = await post_call(http, await daemon.url(), "breaks")
    [line] = await lines_with(daemon, "plugin raised", 1)
    assert line["correlation_id"] == line["call"]
    assert line["place"] == "tools.breaks.python"
    assert line["call"] in text_of(answer)


async def test_stdio_log_lines_have_call_ids(config: Path) -> None:
    async with serving(config, "--stdio") as daemon:
        for number in (1, 2):
            assert text_of(await daemon.ask(call("on_loop", word=f"piped-{number}"))) == f"piped-{number}"
        ids = [{line["call"] for line in await lines_with(daemon, f"piped-{number}", 2)} for number in (1, 2)]
    assert [len(each) for each in ids] == [1, 1]
    assert ids[0] != ids[1]
