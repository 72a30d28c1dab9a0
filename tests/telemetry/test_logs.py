"""Tests for log output."""

import json
import logging
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from gateway.config.settings import LogFormat
from gateway.telemetry.logs import MAX_QUEUED_BYTES, Logs


class Target:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    target = Target(tmp_path / "stderr")
    yield target
    os.close(target.descriptor)


def masked(text: str) -> str:
    return text.replace("hunter2hunter2", "***")


def fail(text: str) -> None:
    raise ValueError(text)


def logs(target: Target, *, level: str = "info", style: LogFormat | None = None) -> Logs:
    return Logs(level=level, style=style, mask=masked, descriptor=target.descriptor)  # type: ignore[arg-type]


def test_event_is_one_json_object_with_level_and_time(target: Target) -> None:
    with logs(target):
        structlog.get_logger().info("catalog swapped", generation=7, names=("a", "b"))
    [event] = target.events()
    assert list(event)[:3] == ["timestamp", "level", "event"]
    assert event.pop("timestamp").endswith("Z")
    assert event == {"event": "catalog swapped", "level": "info", "generation": 7, "names": ["a", "b"]}


def test_events_below_the_level_are_omitted(target: Target) -> None:
    with logs(target, level="warning"):
        structlog.get_logger().info("quiet")
        structlog.get_logger().error("loud")
        logging.getLogger("library").info("quiet")
    assert [event["event"] for event in target.events()] == ["loud"]


def test_debug_shows_only_own_events(target: Target) -> None:
    with logs(target, level="debug"):
        structlog.get_logger().debug("ours")
        logging.getLogger("asyncio").debug("theirs")
    assert [event["event"] for event in target.events()] == ["ours"]


def test_library_record_becomes_an_event(target: Target) -> None:
    with logs(target):
        logging.getLogger("aiohttp.server").warning("bad request from %s", "10.0.0.1")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    first, second = target.events()
    assert (first["event"], first["logger"], first["level"]) == (
        "bad request from 10.0.0.1",
        "aiohttp.server",
        "warning",
    )
    assert "DeprecationWarning: old" in second["event"]


def test_secrets_are_masked_everywhere(target: Target) -> None:
    with logs(target):
        log = structlog.get_logger()
        log.info(
            "hunter2hunter2", a="x hunter2hunter2", b={"hunter2hunter2": ["hunter2hunter2"]}, c=Path("/hunter2hunter2")
        )
        try:
            fail("hunter2hunter2")
        except ValueError:
            log.exception("failed")
            logging.getLogger("library").exception("failed with %s", "hunter2hunter2")
    text = "\n".join(target.lines())
    assert "hunter2" not in text
    assert text.count("***") >= 7


HOSTILE = "a\x1b]0;owned\x07\n2026-01-01 [info] forged\x9b31m\u202egnp.exe\u2028"


def test_caller_text_cannot_affect_terminals_or_forge_lines(target: Target) -> None:
    with logs(target, style="console"):
        structlog.get_logger().info("reload refused", problem=HOSTILE, names={"x": [HOSTILE]})
        structlog.get_logger().info("reload refused")
    with logs(target):
        structlog.get_logger().info("reload refused", problem=HOSTILE, names={HOSTILE: [HOSTILE]})
    written = target.lines()
    assert len(written) == 3
    assert all(line.isprintable() for line in written)
    event = json.loads(written[2])
    assert (event["problem"], event["names"]) == (HOSTILE, {HOSTILE: [HOSTILE]})


def test_exception_has_its_traceback(target: Target) -> None:
    with logs(target):
        try:
            fail("broken")
        except ValueError:
            structlog.get_logger().exception("plugin raised", tool="score")
    [event] = target.events()
    assert event["exception"].startswith("Traceback")
    assert event["exception"].endswith("ValueError: broken")


def test_package_can_have_its_own_level(target: Target) -> None:
    with logs(target, level="warning") as running:
        running.set_level("transports=debug")
        structlog.get_logger("gateway.transports.http_sse").debug("shown")
        structlog.get_logger("gateway.net.clients").info("hidden")
        running.set_level("error")
        structlog.get_logger("gateway.transports.http_sse").debug("hidden again")
    assert [event["event"] for event in target.events()] == ["shown"]


@pytest.mark.parametrize("level", ["loud", "transports=loud", "attic=debug", "=debug="])
def test_unknown_level_or_package_is_an_error(target: Target, level: str) -> None:
    with logs(target) as running, pytest.raises(ValueError, match="expected one of"):
        running.set_level(level)


@pytest.mark.parametrize("value", [float("nan"), object(), b"\xff", "\ud800", {1: 2}, 2**70])
def test_any_value_can_be_logged(target: Target, value: object) -> None:
    with logs(target):
        structlog.get_logger().info("odd", value=value)
    assert len(target.lines()) == 1


def test_console_style_has_no_colour_outside_a_terminal(target: Target) -> None:
    with logs(target, style="console"):
        structlog.get_logger().info("catalog swapped", generation=7)
    [line] = target.lines()
    assert "\x1b" not in line
    assert "catalog swapped" in line
    assert "generation=7" in line


def terminal_output(environ: dict[str, str]) -> str:
    ours, theirs = os.openpty()
    try:
        with Logs(level="info", style=None, mask=masked, descriptor=theirs, environ=environ):
            structlog.get_logger().info("catalog swapped")
        return os.read(ours, 4096).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_terminal_gets_coloured_console_style() -> None:
    text = terminal_output({"TERM": "xterm"})
    assert "catalog swapped" in text
    assert "\x1b[" in text


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_disabled(environ: dict[str, str]) -> None:
    assert "\x1b[" not in terminal_output(environ)


def flood(writer: int, logged: threading.Event) -> None:
    with Logs(level="info", style="json", mask=masked, descriptor=writer):
        for number in range(MAX_QUEUED_BYTES // 500):  # twice the limit
            structlog.get_logger().info("flood", number=number, pad="x" * 1000)
        logged.set()


def test_unread_log_does_not_block_the_process() -> None:
    reader, writer = os.pipe()
    flooding = threading.Thread(target=flood, args=[writer, threading.Event()], daemon=True)
    flooding.start()
    flooding.join(60)
    assert not flooding.is_alive()
    os.close(reader)
    os.close(writer)


def test_number_of_dropped_log_lines_is_reported() -> None:
    others = set(threading.enumerate())  # possibly left over from other tests
    reader, writer = os.pipe()
    flooding = threading.Thread(target=flood, args=[writer, logged := threading.Event()])
    flooding.start()
    assert logged.wait(30)
    read = b""
    while b"log lines dropped" not in read:
        read += os.read(reader, 1 << 20)
    os.close(reader)  # the rest is discarded
    flooding.join(10)
    assert not [each for each in threading.enumerate() if each.name == "log writer" and each not in others]
    os.close(writer)


def test_closed_standard_error_does_not_stop_the_process() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with Logs(level="info", style="json", mask=masked, descriptor=writer):
        for _ in range(10):
            structlog.get_logger().info("unheard")
    os.close(writer)
