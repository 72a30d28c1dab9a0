"""`limits.sampling`: how much a tool may ask of its caller's model."""

from tests.protocol.peers import ERAS, House, text


@ERAS
async def test_a_call_asks_the_model_so_often_at_the_most(inside: House, era: str) -> None:
    await inside.edit("listen:", "limits: {sampling: {per_call: 2, max_tokens: 64}}\nlisten:")
    peer = await inside.of(era)
    assert await text(peer, "chatty", times=2) == "said enough"
    assert [question["params"]["maxTokens"] for question in peer.asked] == [64, 64]
    assert await text(peer, "chatty", times=3) == (
        "error: A call may ask the client's model 2 times at the most (limits.sampling)"
    )
    assert len(peer.asked) == 4
    assert inside.gateway.app.core.pipeline.restart_required == []


@ERAS
async def test_a_callers_model_is_asked_at_a_rate(inside: House, era: str) -> None:
    await inside.edit("listen:", "limits: {sampling: {rate: 3/hour}}\nlisten:")
    peer = await inside.of(era)
    assert await text(peer, "chatty", times=2) == "said enough"  # a call that is tried three times pays for two
    assert "The client's model was asked too often: 3/hour at the most" in await text(peer, "chatty", times=2)
    assert len(peer.asked) == 3


async def test_who_was_asked_by_one_is_not_asked_less_by_another(inside: House) -> None:
    await inside.edit("listen:", "limits: {sampling: {rate: 1/hour}}\nlisten:")
    for principal in ("ada", "bob"):
        assert await text(inside.modern(principal=principal), "chatty", times=1) == "said enough"
    assert (await text(inside.modern(principal="ada"), "chatty", times=1)).startswith("error")
