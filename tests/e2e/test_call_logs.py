"""Log lines about calls and upstreams: failures, rejected arguments, and `listen.access_log`."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.e2e.daemon import post_call, serving

TOOLS = """\
tools:
  fine: {description: Works., content: fine}
  number: {description: Takes a number., input: {count: integer}, content: "{{ count }}"}
  slow: {description: Sleeps., shell: {command: [sleep, "5"]}, timeout: 200ms}
  down: {description: Fails., http: {url: "%s", allow_private: true}}
"""


@pytest.fixture
async def down() -> Any:
    async def fail(_request: web.Request) -> web.Response:
        return web.Response(status=503)

    application = web.Application()
    application.router.add_get("/", fail)
    async with TestServer(application, host="127.0.0.1") as server:
        yield str(server.make_url("/"))


async def test_failures_and_rejected_arguments_are_logged_without_values(tmp_path: Path, down: str) -> None:
    (tmp_path / "config.yaml").write_text('listen: {http: "127.0.0.1:0"}\n' + TOOLS % down)
    async with serving(tmp_path / "config.yaml") as daemon, aiohttp.ClientSession() as http:
        url = await daemon.url()
        await post_call(http, url, "fine")
        await post_call(http, url, "number", count="private")
        refused = await daemon.event("arguments refused")
        assert (refused["level"], refused["tool"], refused["places"]) == ("info", "number", ["/count"])
        await post_call(http, url, "slow")
        assert (await daemon.event("call timed out"))["level"] == "warning"
        await post_call(http, url, "down")
        failed = await daemon.event("backend failed")
        assert (failed["level"], failed["status"], failed["host"]) == ("warning", 503, "127.0.0.1")
    text = "".join(daemon.errors)
    assert "private" not in text
    assert '"call ended"' not in text
    assert '"call failed"' not in text


@pytest.mark.parametrize(("mode", "events"), [("failed", ["call failed"]), ("all", ["call ended", "call failed"])])
async def test_access_log_has_a_line_for_each_call(tmp_path: Path, down: str, mode: str, events: list[str]) -> None:
    (tmp_path / "config.yaml").write_text(f'listen: {{http: "127.0.0.1:0", access_log: {mode}}}\n' + TOOLS % down)
    async with serving(tmp_path / "config.yaml") as daemon, aiohttp.ClientSession() as http:
        url = await daemon.url()
        await post_call(http, url, "fine")
        await post_call(http, url, "down")
        failed = await daemon.event("call failed")
        assert (failed["name"], failed["outcome"], failed["level"]) == ("down", "tool_error", "info")
    assert [event for event in ("call ended", "call failed") if f'"{event}"' in "".join(daemon.errors)] == events


async def test_upstream_that_cannot_start_is_one_warning(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    (tmp_path / "fail.sh").write_text(f"echo start >> {starts}\nexit 1\n")
    (tmp_path / "config.yaml").write_text(
        'listen: {http: "127.0.0.1:0"}\nupstreams: {broken: {command: sh, args: [fail.sh], start: eager}}\n'
        + TOOLS % "http://x"
    )
    async with serving(tmp_path / "config.yaml") as daemon, asyncio.timeout(90):
        await daemon.event("upstream failed")
        while not starts.exists() or starts.read_text().count("start") < 4:
            await asyncio.sleep(0.1)
    assert "".join(daemon.errors).count('"upstream failed"') <= 1
