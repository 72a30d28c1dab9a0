"""Tests for quotas in total and per caller."""

import aiohttp
import pytest

from gateway.config.models.server import Quota
from gateway.protocol.exchange import Binding, Caller
from gateway.transports.errors import MAX_IN_FLIGHT
from gateway.transports.quota import ResourceQuota
from gateway.transports.streamable_http.live_session import LiveSession
from tests.messages import initialize_request
from tests.transports.http_server import RunningServer, http_server


@pytest.mark.parametrize(
    ("written", "per_caller", "in_all"),
    [
        (Quota(), 5000, 10_000),
        (Quota(in_all=300), 150, 300),
        (Quota(in_all=150), 100, 150),
        (Quota(in_all=20), 20, 20),
        (Quota(per_caller=7), 7, 10_000),
        (Quota(per_caller=7, in_all=9), 7, 9),
    ],
    ids=str,
)
def test_default_share_of_a_caller_is_half(written: Quota, per_caller: int, in_all: int) -> None:
    quota = ResourceQuota(written, noun="sessions", default=10_000)
    assert (quota.per_caller, quota.in_all) == (per_caller, in_all)


async def test_errors_name_the_key_and_released_permits_are_free() -> None:
    quota = ResourceQuota(Quota(per_caller=2, in_all=3), noun="streams", default=1)
    assert [await quota.reserve("ada") for _ in range(2)] == [None, None]
    mine = await quota.reserve("ada")
    assert mine is not None
    assert mine.message == "You have 2 streams, the maximum per caller (limits.streams.per_caller)"
    assert await quota.reserve("bob") is None
    full = await quota.reserve("bob")
    assert full is not None
    assert full.message == "All 3 streams are in use (limits.streams)"
    for caller in ("ada", "bob", "ada"):
        quota.release(caller)
    assert (len(quota), quota.refused, quota.refusal_of("ada")) == (0, 2, None)


async def initialize(served: RunningServer, client: aiohttp.ClientSession) -> aiohttp.ClientResponse:
    async with client.post(served.url, json=initialize_request("2025-03-26")) as response:
        await response.read()
        return response


async def test_requests_in_flight_are_limited_per_session() -> None:
    async with http_server() as served:
        session = {"Mcp-Session-Id": (await initialize(served, served.client)).headers["Mcp-Session-Id"]}
        live = await served.sessions.find(session["Mcp-Session-Id"], Caller(binding=Binding.STREAMABLE_HTTP))
        assert isinstance(live, LiveSession)
        batch = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "wait"}}
        statuses = []
        for start in range(0, 270, 90):
            entries = [{**batch, "id": start + number} for number in range(90)]
            headers = {**session, "Accept": "application/json, text/event-stream"}
            async with served.client.post(served.url, json=entries, headers=headers) as response:
                statuses.append(response.status)
        assert statuses == [200, 200, 503]
        assert live.load == 180 <= MAX_IN_FLIGHT
        served.control.release.set()
