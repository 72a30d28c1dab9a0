"""The event stream of the console: events, limits and end."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from gateway.console.event_endpoint import EventEndpoint
from gateway.console.event_feed import MAX_CALLS, MAX_OTHERS, MAX_WATCHERS, EventFeed
from gateway.console.recorded_calls import MAX_NEW, RecordedCalls
from gateway.json_types import Json
from gateway.telemetry.observer import CallResult, Outcome
from tests.behaviour.following import save
from tests.console.watching import CONSOLE, Seen, watched
from tests.messages import legacy_request, open_session
from tests.telemetry.calls import call_of

FILE: Final = """
tools:
  greet: {description: Greets., content: [{text: Hello}]}
  waits:
    description: Waits.
    input: {path: string}
    shell: {command: [sh, -c, "until [ -e \\"$1\\" ]; do sleep 0.01; done", sh, "{{ path }}"]}
"""
VIEWS: Final = """
views:
  few: {include: {tools: [greet]}}
"""
OPERATOR: Final = "operator-key-0123456789"
AUTH: Final = f"""
auth:
  api_keys:
    operator: {{secret: {OPERATOR}, scopes: [console]}}
"""


def is_call(name: str, outcome: str) -> Callable[[Seen], bool]:
    return lambda event: event.kind == "call" and (event.data["name"], event.data["outcome"]) == (name, outcome)


async def test_call_has_events_at_its_start_and_end(tmp_path: Path) -> None:
    async with watched(tmp_path, FILE) as daemon, daemon.events() as events:
        calling = asyncio.create_task(daemon.call("waits", path=str(tmp_path / "go")))
        began = await events.until(is_call("waits", "running"))
        assert began.data["ms"] is None
        status = await events.until(lambda event: event.kind == "status" and event.data["callsRunning"] == 1)
        assert status.data["state"] == "ready"
        (tmp_path / "go").touch()
        ended = await events.until(is_call("waits", "ok"))
        assert ended.data["seq"] == began.data["seq"]
        assert ended.data["ms"] > 0
        await calling


async def test_stream_without_calls_has_no_call_events(tmp_path: Path) -> None:
    async with watched(tmp_path, FILE) as daemon, daemon.events(calls="0") as events:
        await daemon.call("greet")
        await events.until(lambda event: event.kind == "status" and event.data["rate"]["calls"] == 1)
        assert "call" not in {event.kind for event in events.seen}


async def test_reload_event_lists_changes_and_clients(tmp_path: Path) -> None:
    async with watched(tmp_path, FILE + VIEWS) as daemon, daemon.events() as events:
        added = FILE.replace("Greets.", "Says hello.").replace("  waits:", "  delays:")
        save(daemon.config, CONSOLE + added + VIEWS)
        await daemon.ask("POST", "/reload")
        wanted = await events.until(lambda event: event.kind == "reload" and event.data["trigger"] != "start")
        reload = wanted.data
        assert (reload["outcome"], reload["trigger"], reload["generation"]) == ("loaded", "request", 2)
        changes = {(each["change"], each["kind"], each["name"]): each["views"] for each in reload["changes"]}
        assert changes == {
            ("changed", "tool", "greet"): ["few"],
            ("added", "tool", "delays"): [],
            ("removed", "tool", "waits"): [],
        }
        assert reload["noticedBy"]["view few"] == ["tools"]
        assert reload["problems"] == []

        save(daemon.config, CONSOLE + FILE + "  broken: {shell: {command: 7}}\n")
        await daemon.ask("POST", "/reload", status=422)
        refused = (await events.until(lambda event: event.kind == "reload" and event.data["problems"])).data
        assert (refused["outcome"], refused["generation"], refused["changes"]) == ("refused", 2, [])
        problem = refused["problems"][0]
        assert problem["path"].startswith("tools.broken")
        assert problem["line"] == CONSOLE.count("\n") + FILE.count("\n") + 1
        assert "broken: {shell: {command: 7}}" in problem["excerpt"]
        assert problem["excerpt"].endswith("^")


async def test_unchanged_reload_is_reported(tmp_path: Path) -> None:
    async with watched(tmp_path, FILE) as daemon, daemon.events() as events:
        await daemon.ask("POST", "/reload")
        assert (await events.first("reload"))["outcome"] == "unchanged"


async def test_session_is_listed_announced_and_ended(tmp_path: Path) -> None:
    async with watched(tmp_path, FILE) as daemon, daemon.events() as events:
        headers = await open_session(daemon.http, daemon.url)
        opened = await events.first("session")
        call = legacy_request("tools/call", {"name": "greet", "arguments": {}})
        async with daemon.http.post(daemon.url, json=call, headers=headers) as response:
            assert response.status == 200
        listed = await daemon.get("/sessions")
        [session] = listed["sessions"]
        assert session["id"] == opened["id"]
        assert session["id"] not in headers["Mcp-Session-Id"]
        assert (session["client"], session["calls"], listed["total"]) == ("test 1", 1, 1)
        recorded = (await daemon.get("/calls"))["calls"][-1]
        assert recorded["sessionId"] == session["id"]

        await daemon.ask("DELETE", f"/sessions/{session['id']}", status=204)
        ended = await events.until(lambda event: event.kind == "session" and event.data["change"] == "ended")
        assert ended.data["id"] == session["id"]
        async with daemon.http.post(daemon.url, json=call, headers=headers) as response:
            assert response.status == 404
        await daemon.ask("DELETE", f"/sessions/{session['id']}", status=404)


async def test_open_event_streams_are_limited(tmp_path: Path) -> None:
    async with watched(tmp_path, FILE) as daemon:
        opened: list[aiohttp.ClientResponse] = []
        for _ in range(MAX_WATCHERS):
            opened.append(await daemon.http.get(f"{daemon.api}/events", headers=daemon.bearer))
            await opened[-1].content.readany()
        assert "event streams" in (await daemon.get("/events", status=429))["error"]
        for response in opened:
            response.close()
        while True:
            async with daemon.http.get(f"{daemon.api}/events", headers=daemon.bearer) as response:
                if response.status == 200:
                    break


async def test_event_stream_ends_when_the_daemon_drains(tmp_path: Path) -> None:
    async with watched(tmp_path, FILE) as daemon, daemon.events() as events:
        stopping = asyncio.create_task(daemon.gateway.stop())
        await events.first("draining")
        await events.until_end()
        await stopping


async def test_event_stream_ends_with_its_credential(tmp_path: Path) -> None:
    async with watched(tmp_path, CONSOLE + FILE + AUTH) as daemon:
        daemon.bearer["Authorization"] = f"Bearer {OPERATOR}"
        async with daemon.events() as events:
            save(daemon.config, CONSOLE + FILE + AUTH.replace(OPERATOR, "another-key-9876543210"))
            await daemon.gateway.app.core.reloader.reload()
            with pytest.raises(aiohttp.ClientPayloadError):
                await events.until_end()
        await daemon.get("/calls", status=401)


async def test_slow_page_does_not_block_calls(tmp_path: Path) -> None:
    """The connection and the queue are full, and further events are counted. Other watchers receive all events."""
    async with watched(tmp_path, FILE) as daemon:
        slow = await daemon.http.get(f"{daemon.api}/events", headers=daemon.bearer)
        await slow.content.readany()
        assert slow.connection is not None
        assert slow.connection.transport is not None
        slow.connection.transport.pause_reading()
        assert daemon.gateway.app.console is not None
        feed = daemon.gateway.app.console_feed
        [queue] = feed._queues
        while queue._skipped == 0:
            feed.publish_calls([{"seq": number, "padding": "x" * 2000} for number in range(100)], skipped=0)
            await asyncio.sleep(0)
        assert sum(map(len, queue._events.values())) < (MAX_CALLS + 1) * 3000
        async with daemon.events() as events:
            await daemon.call("greet")
            await events.until(is_call("greet", "ok"))
        slow.close()


async def test_worker_that_does_not_respond_does_not_delay_the_calls_of_other_workers(tmp_path: Path) -> None:
    async def ask_silent_worker(_method: str, _path: str) -> Sequence[Json]:
        return await asyncio.Future()

    async with watched(tmp_path, FILE) as daemon:
        app = daemon.gateway.app
        assert app.console_worker is not None
        feed, requests = EventFeed(), app.console_worker.http.active_requests
        stream = EventEndpoint(feed, own=app.console_worker, ask_others=ask_silent_worker, active_requests=requests)
        with stream._publishing_status(), feed.watch() as watcher:
            for _ in range(2):
                await daemon.call("greet")
                assert b'"greet"' in (await watcher.get() or b"")
        await stream.close()


async def test_unwatched_feed_does_no_work(tmp_path: Path) -> None:
    async with watched(tmp_path, FILE) as daemon:
        assert daemon.gateway.app.console is not None
        feed = daemon.gateway.app.console_feed
        assert not feed.wants_calls
        async with daemon.events(calls="0"):
            assert not feed.wants_calls
        async with daemon.events():
            assert feed.wants_calls
        while feed.wants_calls:
            await daemon.call("greet")


async def test_no_observer_is_registered_without_a_console(tmp_path: Path) -> None:
    async with watched(tmp_path, "listen: {}\n" + FILE) as daemon:
        assert daemon.gateway.app.core.dispatcher._server.observers_of_all == ()


def run(calls: RecordedCalls, count: int) -> None:
    for number in range(count):
        call = call_of("tools/call", f"t{number}")
        calls.began(call)
        calls.ended(call, CallResult(outcome=Outcome.OK, seconds=0.01, response=b"{}"))


def test_further_new_calls_are_counted() -> None:
    calls = RecordedCalls()
    since = calls.next_number()
    run(calls, MAX_NEW + 30)
    found = calls.since(since)
    assert [call["name"] for call in found["calls"]] == [f"t{number}" for number in range(30, MAX_NEW + 30)]
    assert found["skipped"] == 30
    assert calls.since(calls.next_number()) == {"calls": [], "skipped": 0}


def test_end_of_an_earlier_call_is_never_skipped() -> None:
    calls, earlier = RecordedCalls(), call_of("tools/call", "earlier")
    calls.began(earlier)
    since = calls.next_number()
    calls.ended(earlier, CallResult(outcome=Outcome.OK, seconds=0.01, response=b"{}"))
    run(calls, MAX_NEW + 30)
    found = calls.since(since)
    assert (found["calls"][0]["name"], found["calls"][0]["outcome"]) == ("earlier", "ok")
    assert (len(found["calls"]), found["skipped"]) == (1 + MAX_NEW, 30)


def test_calls_that_are_removed_before_they_are_shown_are_counted() -> None:
    calls = RecordedCalls(max_calls=10)
    run(calls, 5)
    since = calls.next_number()
    run(calls, 30)
    found = calls.since(since)
    assert (len(found["calls"]), found["skipped"]) == (10, 20)


async def test_queue_of_a_slow_watcher_is_bounded() -> None:
    feed = EventFeed()
    with feed.watch() as watcher:
        for number in range(100):
            feed.publish_calls([{"seq": number}] * 40, skipped=2)
            feed.publish("status", {"state": "ready"}, is_state=True)
        events = await watcher.get()
        assert events is not None
        assert events.count(b"event: call\n") == MAX_CALLS
        assert events.count(b"event: status\n") == 1
        assert b'{"count":%d}' % (100 * 42 - MAX_CALLS) in events
        for _ in range(MAX_OTHERS + 1):
            feed.publish("task", {"taskId": "1", "status": "working"})
        assert watcher.is_lost
