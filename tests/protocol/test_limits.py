"""Rate limits and permits: reloads apply at once and keep the counts."""

import asyncio
from typing import Final

import pytest

from gateway.access.identity import Identity
from gateway.protocol.exchange import Binding, Caller
from tests.protocol.peers import ERAS, SECONDS, LocalGateway, silent, text

ADA: Final = Identity(principal="ada", realm="keys")
NAME: Final = {"action": "accept", "content": {"name": "Ada"}}


async def limited(inside: LocalGateway, limits: str) -> None:
    """Set limits, and make a tool that sends no input requests."""
    await inside.edit("tools:\n", "tools:\n  plain: {description: Does not ask., content: plain}\n")
    await inside.edit("listen:", f"limits: {limits}\nlisten:")


@ERAS
async def test_rate_limit_applies_after_reload_and_keeps_counts(inside: LocalGateway, era: str) -> None:
    await limited(inside, "{rate_limit: 3/hour}")
    peer = await inside.of(era)
    assert [(await text(peer, "plain")).startswith("error") for _ in range(4)] == [False] * 3 + [True]
    await inside.edit("rate_limit: 3/hour", "rate_limit: {per_caller: 4/hour, in_all: 100/second}")
    assert [(await text(peer, "plain")).startswith("error") for _ in range(2)] == [False, True]
    await inside.edit("limits: {rate_limit: {per_caller: 4/hour, in_all: 100/second}}\n", "")
    assert not (await text(peer, "plain")).startswith("error")
    assert inside.gateway.app.core.pipeline.restart_required == []


async def test_calls_and_each_list_are_counted_separately(inside: LocalGateway) -> None:
    await limited(inside, "{rate_limit: 2/hour}")
    peer = await inside.legacy()
    for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list", "ping"):
        for _ in range(2):
            assert "result" in await peer.request(method, {})
    assert "result" in await peer.request("ping", {})
    assert "error" in await peer.request("tools/list", {"cursor": None}), "which is the first page as well"
    refused = await peer.request("tools/list", {})
    assert refused["error"]["code"] == 429
    assert "at most 2/hour for one caller (limits.rate_limit of tools/list)" in refused["error"]["message"]
    for _ in range(2):
        assert (await peer.request("tools/call", {"name": "nowhere"}))["error"]["code"] == -32602
    refused = await peer.request("tools/call", {"name": "nowhere"})
    assert refused["result"]["isError"]
    assert "at most 2/hour for one caller (limits.rate_limit)" in refused["result"]["content"][0]["text"]
    assert (await peer.request("resources/read", {"uri": "x://nowhere"}))["error"]["code"] == 429


async def test_pages_of_a_list_count_once(inside: LocalGateway) -> None:
    await limited(inside, "{rate_limit: 1/hour}")
    await inside.edit("listen:", "server: {page_size: 1}\nlisten:")
    peer = await inside.legacy()
    result = (await peer.request("tools/list", {}))["result"]
    pages = 1
    while "nextCursor" in result:
        result = (await peer.request("tools/list", {"cursor": result["nextCursor"]}))["result"]
        pages += 1
    assert pages > 1
    for is_refused in (False, True):
        answer = await peer.request("tools/call", {"name": "plain", "cursor": "a"})
        assert answer["result"].get("isError", False) is is_refused


async def test_rate_limits_are_per_principal(inside: LocalGateway) -> None:
    await limited(inside, "{rate_limit: 1/hour}")
    for identity in (
        Identity(principal="ada", realm="keys"),
        Identity(principal="bob", realm="keys"),
        Identity(principal="ada", realm="https://idp.example.com"),
    ):
        peer = inside.modern(identity=identity)
        assert [(await text(peer, "plain")).startswith("error") for _ in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("address", "payer"),
    [
        ("192.0.2.7", "anonymous@192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "anonymous@2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "anonymous@2001:db8:1:2::/64"),
        ("fe80::1%eth0", "anonymous@fe80::/64"),
        ("::1", "anonymous@::/64"),
        ("::ffff:192.0.2.7", "anonymous@192.0.2.7"),
        ("not:an:address", "anonymous@not:an:address"),
        ("", "anonymous@"),
    ],
)
def test_ipv6_network_is_one_caller(address: str, payer: str) -> None:
    caller = Caller(binding=Binding.STREAMABLE_HTTP, address=address)
    assert caller.rate_limit_key == payer
    assert Caller(binding=Binding.STREAMABLE_HTTP, address=address, identity=ADA).rate_limit_key == "keys ada"


async def test_open_input_request_releases_the_callers_permit(inside: LocalGateway) -> None:
    await limited(inside, "{concurrency: {per_caller: 1, in_all: 1}, queue: 1}")
    peer = await inside.legacy(respond=silent)
    asking = asyncio.create_task(text(peer, "short"))
    async with asyncio.timeout(SECONDS):
        question = await peer.questions.get()
        assert not (await text(peer, "plain")).startswith("error")
        await peer.answer(question["id"], result=NAME)
        assert not (await asking).startswith("error")


async def test_inner_read_that_sends_requests_does_not_deadlock(inside: LocalGateway) -> None:
    await limited(inside, "{concurrency: {per_caller: 1, in_all: 1}, queue: 1}")
    peer = await inside.legacy()
    async with asyncio.timeout(SECONDS):
        assert not (await text(peer, "reads")).startswith("error")
