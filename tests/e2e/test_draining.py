"""Shutdown: the daemon becomes unready, refuses new calls, finishes running ones, and notifies each caller."""

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.daemon import call, post_call, serving, text_of
from tests.e2e.test_stopping import running
from tests.messages import BOTH, initialize_request, legacy_request, modern_headers, modern_request, open_session


async def test_readiness_fails_before_requests_are_rejected(config: Path) -> None:
    async with serving(config, "--drain-timeout", "20s") as daemon, aiohttp.ClientSession() as client:
        url = await daemon.url()
        ready = url.replace("/mcp", "/-/ready")
        async with client.get(ready) as response:
            assert response.status == 200
        daemon.signal(signal.SIGTERM)
        await daemon.event("stopping")
        async with aiohttp.ClientSession() as another:  # a new connection, which is still accepted
            async with another.get(ready) as response:
                assert (response.status, (await response.json())["state"]) == (503, "stopping")
                assert response.headers["Connection"] == "close"
            assert text_of(await post_call(another, url, "echo", text="late")) == "late"
            async with another.post(url, json=initialize_request(), headers={"Accept": BOTH}) as response:
                assert response.status == 503
        assert await daemon.exit_code(within=30) == 0


async def test_call_longer_than_the_drain_gets_an_error(config: Path) -> None:
    async with serving(config, "--drain-timeout", "300ms") as daemon, aiohttp.ClientSession() as client:
        url = await daemon.url()
        params = {"name": "slow", "arguments": {"seconds": 60.0}}
        headers = modern_headers("tools/call", params, Accept=BOTH)
        modern = asyncio.create_task(client.post(url, json=modern_request("tools/call", params), headers=headers))
        session = await open_session(client, url)
        body = legacy_request("tools/call", params, request_id=7)
        legacy = asyncio.create_task(client.post(url, json=body, headers=session))
        await running(client, url, calls=2)
        daemon.signal(signal.SIGTERM)
        async with asyncio.timeout(15):
            for waiting, request_id in ((modern, 1), (legacy, 7)):
                text = await (await waiting).text()
                assert f'"id":{request_id}' in text.replace(" ", "")
                assert '"error"' in text
        assert await daemon.exit_code(within=10) == 0


async def test_stdio_call_longer_than_the_drain_gets_an_error(config: Path) -> None:
    async with serving(config, "--stdio", "--drain-timeout", "300ms") as daemon:
        daemon.send(call("slow", seconds=60.0))
        assert text_of(await daemon.ask(call("echo", request_id=2, text="x"))) == "x"
        daemon.signal(signal.SIGTERM)
        answer = await daemon.receive()
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)
        assert await daemon.exit_code(within=10) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_daemon_without_readiness_probes_stops_at_once(config: Path, number: signal.Signals) -> None:
    async with serving(config, "--drain-timeout", "1h") as daemon:
        await daemon.url()
        daemon.signal(number)
        assert await daemon.exit_code(within=10) == 0
