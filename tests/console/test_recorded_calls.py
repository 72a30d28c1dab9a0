"""Recorded calls: content, masking and bounds."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.config.secrets.redactor import Redactor
from gateway.console.call_rates import INTERVALS, SECONDS, CallRates, intervals_of
from gateway.console.call_record import MAX_BODY, NOT_SHOWN, shown_body
from gateway.console.recorded_calls import MAX_BYTES, MAX_CALLS, CallFilter, RecordedCalls
from gateway.telemetry.observer import CallResult, Outcome
from gateway.wire import jsonrpc
from tests.console.watching import watched
from tests.effort import cost
from tests.telemetry.calls import ObservedCall, call_of

SECRET: Final = 'hunter2-"and\nmore'
FILE: Final = """
plugins: [plugins]
tools:
  greet:
    description: Greets.
    input: {name: string}
    content: [{text: "Hello {{ name }}"}]
  fails: {description: Fails., shell: {command: ["false"]}}
  leaks: {description: Leaks., shell: {command: [printenv, PASSWORD], env: {PASSWORD: "${env:PASSWORD}"}}}
  leaks_and_fails:
    description: Leaks and fails.
    shell: {script: 'echo "$PASSWORD" >&2; exit 2', env: {PASSWORD: "${env:PASSWORD}"}}
  reports: {python: "house:reports"}
"""
PLUGIN: Final = '''
import logging
from gateway.plugin import Context

async def reports(context: Context) -> str:
    """Reports."""
    logging.getLogger("house").error("halfway")
    await context.progress(1, 2, "first half")
    return "done"
'''


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "correct-horse-battery")


def folder_of(tmp_path: Path) -> Path:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "house.py").write_text(PLUGIN)
    return tmp_path


def run(calls: RecordedCalls, call: ObservedCall, *, response: bytes | None = b"{}", **ending: Any) -> None:
    calls.began(call)
    calls.ended(call, CallResult(outcome=ending.pop("outcome", Outcome.OK), seconds=0.01, response=response, **ending))


def recorder(*, max_calls: int = MAX_CALLS, max_bytes: int = MAX_BYTES) -> RecordedCalls:
    return RecordedCalls(max_calls=max_calls, max_bytes=max_bytes)


def names(calls: RecordedCalls, **query: str) -> list[str]:
    return [call["name"] for call in calls.listed(CallFilter.parse(query))["calls"]]


async def test_call_is_shown_with_all_details(tmp_path: Path) -> None:
    async with watched(folder_of(tmp_path), FILE) as daemon:
        await daemon.call("greet", name="Ada")
        call = await daemon.only_call()
        assert (call["name"], call["kind"], call["method"], call["outcome"]) == ("greet", "tool", "tools/call", "ok")
        assert (call["transport"], call["era"], call["revision"]) == ("streamable-http", "modern", "2026-07-28")
        assert call["request"]["params"]["arguments"] == {"name": "Ada"}
        assert call["response"]["result"]["content"][0]["text"] == "Hello Ada"
        assert call["ms"] > 0
        assert call["responseBytes"] > 20
        assert not call["requestTruncated"]
        assert not call["responseTruncated"]

        await daemon.call("reports")
        reports = await daemon.only_call(name="reports")
        assert [line["event"] for line in reports["log"]] == ["halfway"]
        assert [(each["progress"], each["message"]) for each in reports["progress"]] == [(1, "first half")]

        await daemon.call("greet", name="x" * 2 * MAX_BODY)
        large = await daemon.only_call(after=str(reports["seq"]))
        for body in ("request", "response"):
            assert large[f"{body}Truncated"]
            assert large[f"{body}Bytes"] > 2 * MAX_BODY
            assert MAX_BODY - 2000 < len(large[body]) <= MAX_BODY


async def test_failed_call_has_the_masked_message_of_its_error(tmp_path: Path) -> None:
    async with watched(folder_of(tmp_path), FILE) as daemon:
        for tool in ("greet", "fails", "leaks_and_fails", "no_such_tool"):
            await daemon.call(tool, **({"name": "Ada"} if tool == "greet" else {}))
        reasons = {call["name"]: call["reason"] for call in (await daemon.get("/calls"))["calls"]}
        assert reasons["greet"] is None
        assert "exit code 1" in reasons["fails"]
        assert reasons["no_such_tool"] == "Unknown tool: no_such_tool"
        assert "***" in reasons["leaks_and_fails"]
        assert "correct-horse" not in str(reasons)
        assert (await daemon.only_call(q="exit code 1"))["name"] == "fails"


async def test_secrets_are_masked_in_arguments_and_in_results(tmp_path: Path) -> None:
    async with watched(folder_of(tmp_path), FILE) as daemon:
        await daemon.call("greet", name="it is correct-horse-battery")
        call = await daemon.only_call()
        await daemon.call("leaks")
        leak = await daemon.only_call(name="leaks")
        assert leak["outcome"] == "ok"
        assert "correct-horse" not in str(call) + str(leak)
        assert call["request"]["params"]["arguments"]["name"].startswith("it is ")
        assert (await daemon.get("/calls", {"q": "correct-horse"}))["calls"] == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"outcome": "tool_error"}, ["fails"]),
        ({"name": "greet"}, ["greet"]),
        ({"name": "greet,fails"}, ["greet", "fails"]),
        ({"method": "resources/read"}, []),
        ({"q": "FAI"}, ["fails"]),
        ({"client": "elsewhere"}, []),
        ({"limit": "1"}, ["fails"]),
        ({"after": "0", "limit": "1"}, ["greet"]),
    ],
)
def test_calls_are_filtered(query: dict[str, str], found: list[str]) -> None:
    calls = recorder()
    run(calls, call_of("tools/call", "greet"))
    run(calls, call_of("tools/call", "fails"), outcome=Outcome.TOOL_ERROR)
    assert names(calls, **query) == found


@pytest.mark.parametrize("query", [{"after": "x"}, {"limit": "-1"}, {"before": "9" * 30}])
async def test_invalid_query_is_rejected(query: dict[str, str], tmp_path: Path) -> None:
    async with watched(folder_of(tmp_path), FILE) as daemon:
        answer = await daemon.get("/calls", query, status=400)
        assert next(iter(query)) in answer["error"]


def test_oldest_ended_calls_are_dropped_first() -> None:
    calls = recorder(max_calls=3)
    running = call_of("tools/call", "waits")
    calls.began(running)
    for number in range(5):
        run(calls, call_of("tools/call", f"t{number}"))
    assert names(calls) == ["waits", "t2", "t3", "t4"]
    calls.ended(running, CallResult(outcome=Outcome.CANCELLED, seconds=1))
    assert names(calls) == ["waits", "t3", "t4"]


def test_bodies_are_bounded() -> None:
    calls = recorder(max_bytes=4 * MAX_BODY)
    for number in range(50):
        run(calls, call_of("tools/call", f"t{number}"), response=b'"%b"' % (b"x" * MAX_BODY * 2))
    assert calls._bytes <= 4 * MAX_BODY
    assert len(names(calls)) == 3


@pytest.mark.parametrize("padding", [0, *range(MAX_BODY - 60, MAX_BODY + 20, 7)])
def test_cut_body_shows_no_part_of_a_secret(padding: int) -> None:
    secret = "hunter2-and-more"
    body = jsonrpc.encode({"text": "x" * padding + secret + "y" * 2 * MAX_BODY, "number": 7})
    shown = shown_body(body[:MAX_BODY], Redactor([secret]), is_cut=True)
    assert isinstance(shown, str)
    assert "hunter" not in shown
    assert shown.startswith('{"text":"')


@pytest.mark.parametrize("secret", ['quoted"and\\escaped\n', "in ünicode 😀", "1234567890123"])
def test_cut_body_shows_no_part_of_an_escaped_secret(secret: str) -> None:
    whole = json.dumps({"text": "x" * 1000, "secret": secret, "more": "y" * 1000})
    for cut in range(1000, len(whole)):
        shown = shown_body(whole[:cut].encode(), Redactor([secret]), is_cut=True)
        assert isinstance(shown, str)
        assert json.dumps(secret)[1:5] not in shown


def test_cut_body_shows_no_part_of_a_secret_in_json_within_json() -> None:
    secret = "éàüöñçßø"
    whole = json.dumps({"text": json.dumps({"text": json.dumps({"secret": secret})})})
    for cut in range(len(whole)):
        shown = shown_body(whole[:cut].encode(), Redactor([secret]), is_cut=True)
        assert isinstance(shown, str)
        assert "u00e9" not in shown


@pytest.mark.parametrize(
    "body",
    [*(b"[" * depth + b'"hunter2", "hunter2-and-more"' + b"]" * depth for depth in (201, 900, 2000)), b"9" * 5000],
)
def test_body_that_cannot_be_encoded_is_not_shown(body: bytes) -> None:
    assert shown_body(body, Redactor(["hunter2", "hunter2-and-more"]), is_cut=False) == NOT_SHOWN


def test_ended_record_does_not_keep_the_catalog() -> None:
    calls = recorder()
    run(calls, call_of("tools/call", "greet"))
    [call] = calls.listed(CallFilter())["calls"]
    record = calls.find(call["seq"])
    assert record is not None
    assert record.call is None


def test_recording_cost_is_constant() -> None:
    calls = recorder(max_calls=500)

    def effort() -> int:
        return cost(lambda: run(calls, call_of("tools/call", "greet")))

    effort()
    few = effort()
    for _ in range(1000):
        run(calls, call_of("tools/call", "greet"))
    assert effort() <= few + 10


def test_sequence_numbers_increase_and_identify_workers() -> None:
    moments = iter([5.0, 5.0, 4.0, 6.0])
    numbers = RecordedCalls(worker=3, clock=lambda: next(moments))
    first = [numbers.next_number() for _ in range(4)]
    assert first == sorted(set(first))
    assert {each % 32 for each in first} == {3}
    assert RecordedCalls().next_number() < 2**53


def test_rates_cover_the_last_hour() -> None:
    now = 1_000_000.0
    rates = CallRates(clock=lambda: now)
    for milliseconds in range(1, 101):
        rates.add(milliseconds / 1000, outcome=Outcome.OK if milliseconds % 10 else Outcome.TOOL_ERROR)
    now += SECONDS
    rates.add(2.0, outcome=Outcome.CANCELLED)
    shown = rates.shown()
    assert (shown["calls"][-2:], shown["errors"][-2:]) == ([100, 1], [10, 0])
    assert shown["p50Ms"][-2] == pytest.approx(50, rel=0.1)
    assert shown["p95Ms"][-2] == pytest.approx(95, rel=0.1)
    assert len(shown["calls"]) == len(shown["p95Ms"]) == INTERVALS
    assert shown["p50Ms"][0] is None
    assert rates.last_seconds() == {"calls": 1, "errors": 0}
    doubled = rates.shown([intervals_of(rates.as_json())])
    assert doubled["calls"][-2:] == [200, 2]
    now += SECONDS * (INTERVALS + 1)
    rates.add(0.1, outcome=Outcome.OK)
    assert sum(rates.shown()["calls"]) == 1
    assert len(rates.as_json()) == 1


def test_log_lines_of_a_call_are_bounded() -> None:
    calls = recorder()
    call = call_of("tools/call", "greet")
    calls.began(call)
    for number in range(1000):
        calls.heard({"call": call.id, "event": f"line {number}", "level": "info", "long": "x" * 100_000})
    calls.heard({"call": "another", "event": "elsewhere"})
    [listed] = calls.listed(CallFilter())["calls"]
    record = calls.find(listed["seq"])
    assert record is not None
    shown = record.detail()["log"]
    assert shown[0]["event"] == "line 0"
    assert len(str(shown)) < 40_000
