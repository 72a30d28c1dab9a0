"""Input requests of plugins, and their errors, in both eras."""

import pytest

from gateway.json_types import JsonObject
from tests.protocol.peers import ERAS, LocalGateway, call, text

pytestmark = pytest.mark.asyncio(loop_scope="session")


@ERAS
@pytest.mark.parametrize(
    ("action", "said"), [("decline", "decline None"), ("cancel", "cancel None"), ("accept", "accept {'name': 'Ada'}")]
)
async def test_declined_request_is_a_response(asking: LocalGateway, era: str, action: str, said: str) -> None:
    peer = await asking.of(era, respond=lambda *_: {"action": action, "content": {"name": "Ada"}})
    assert await text(peer, "named") == said


@ERAS
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("catches", {"what": "Exception"}),
        ("catches", {"what": "BaseException"}),
        ("catches_in_a_thread", {}),
        ("turns_into_an_error", {}),
    ],
)
async def test_caught_suspension_still_ends_the_call(
    asking: LocalGateway, era: str, tool: str, arguments: JsonObject
) -> None:
    peer = await asking.of(era)
    assert await text(peer, tool, **arguments) == "answered"
    assert len(peer.asked) == 1


@ERAS
@pytest.mark.parametrize("tool", ["together", "in_a_group", "in_threads"])
async def test_concurrent_requests_are_sent_together(asking: LocalGateway, era: str, tool: str) -> None:
    peer = await asking.of(era)
    assert await text(peer, tool) == "accept accept"
    assert len(peer.asked) == 2
    if era == "modern" and tool != "in_threads":
        answer = await asking.modern().once("tools/call", {"name": tool})
        assert set(answer["result"]["inputRequests"]) == {"first", "second"}


@ERAS
async def test_key_with_two_requests_is_an_error(asking: LocalGateway, era: str) -> None:
    peer = await asking.of(era)
    assert await text(peer, "same_key") == "error: The key 'key' is already used for another input request of this call"
    assert len(peer.asked) == 1


@ERAS
async def test_key_of_confirm_is_reserved(asking: LocalGateway, era: str) -> None:
    assert await text(await asking.of(era), "reserved") == "error: The key mcp-gateway.confirm is reserved"


@ERAS
async def test_invalid_request_is_not_sent(asking: LocalGateway, era: str) -> None:
    peer = await asking.of(era)
    assert "neither text, a number, a boolean nor a choice: deep" in await text(peer, "malformed")
    assert peer.asked == []


@ERAS
async def test_once_requires_json_without_secrets(asking: LocalGateway, era: str) -> None:
    peer = await asking.of(era)
    assert await text(peer, "keeps", what="tuple") == "[1, 2]"
    assert await text(peer, "keeps", what="large") == str(2**70)
    for what in ("object", "secret", "nan"):
        said = await text(peer, "keeps", what=what)
        assert "failed; correlation id" in said
        assert "hunter2" not in said


@ERAS
async def test_request_after_the_end_of_the_call_is_an_error(asking: LocalGateway, era: str) -> None:
    peer = await asking.of(era)
    assert await text(peer, "asks_too_late") == "done"
    assert await text(peer, "what_became_of_it") == "The call has ended"
    assert peer.asked == []


async def test_2025_06_18_gets_its_own_form(asking: LocalGateway) -> None:
    peer = await asking.legacy(revision="2025-06-18")
    assert not (await call(peer, "on_the_loop")).get("isError")
    titled = peer.asked[0]["params"]["requestedSchema"]["properties"]["titled"]
    assert titled == {"type": "string", "enum": ["a"], "enumNames": ["A"]}
    assert await text(peer, "linked") == "error: This needs a client with the capability elicitation"
    assert "field 'many' allows several values" in await text(peer, "chosen")
    assert len(peer.asked) == 6


@ERAS
async def test_secrets_in_requests_are_masked(asking: LocalGateway, era: str) -> None:
    peer = await asking.of(era)
    assert await text(peer, "says_the_secret") == "accept"
    assert "hunter2" not in peer.asked[0]["params"]["message"]
