"""`limits.sampling`: limits of sampling requests."""

from tests.protocol.peers import ERAS, LocalGateway, text


@ERAS
async def test_sampling_requests_per_call_are_limited(inside: LocalGateway, era: str) -> None:
    await inside.edit("listen:", "limits: {sampling: {per_call: 2, max_tokens: 64}}\nlisten:")
    peer = await inside.of(era)
    assert await text(peer, "chatty", times=2) == "said enough"
    assert [question["params"]["maxTokens"] for question in peer.asked] == [64, 64]
    assert await text(peer, "chatty", times=3) == (
        "error: A call can send at most 2 sampling requests (limits.sampling)"
    )
    assert len(peer.asked) == 4
    assert inside.gateway.app.core.pipeline.restart_required == []


@ERAS
async def test_sampling_rate_is_limited(inside: LocalGateway, era: str) -> None:
    await inside.edit("listen:", "limits: {sampling: {rate: 3/hour}}\nlisten:")
    peer = await inside.of(era)
    assert await text(peer, "chatty", times=2) == "said enough"  # a call with three tries counts two requests
    assert "Called too often: at most 3/hour for one caller (limits.sampling)" in await text(peer, "chatty", times=2)
    assert len(peer.asked) == 3


async def test_sampling_rate_is_per_caller(inside: LocalGateway) -> None:
    await inside.edit("listen:", "limits: {sampling: {rate: 1/hour}}\nlisten:")
    for principal in ("ada", "bob"):
        assert await text(inside.modern(principal=principal), "chatty", times=1) == "said enough"
    assert (await text(inside.modern(principal="ada"), "chatty", times=1)).startswith("error")
