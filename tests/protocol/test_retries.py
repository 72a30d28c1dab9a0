"""Retries of modern clients with `inputResponses` and `requestState`."""

import pytest

from gateway.json_types import Json
from tests.protocol.peers import LocalGateway

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("garbage", [None, [], 7, "yes", True, [{"name": {"action": "accept"}}]])
async def test_malformed_input_responses_are_rejected(asking: LocalGateway, garbage: Json) -> None:
    for tool in ("named", "steps"):
        message = await asking.modern().once("tools/call", {"name": tool, "inputResponses": garbage})
        assert message["error"]["code"] == -32602


@pytest.mark.parametrize(
    "garbage",
    [None, [], 7, {}, {"action": "maybe"}, {"action": "accept"}, {"action": "accept", "content": {"name": 7}}],
)
async def test_response_that_does_not_match_is_rejected(asking: LocalGateway, garbage: Json) -> None:
    message = await asking.modern().once("tools/call", {"name": "named", "inputResponses": {"name": garbage}})
    assert message["error"]["code"] == -32602
    assert message["error"]["data"] == {"key": "name"}


async def test_unknown_response_keys_are_ignored(asking: LocalGateway) -> None:
    other = {"other": {"action": "accept"}, "mcp-gateway.confirm": 7}
    asked = await asking.modern().once("tools/call", {"name": "named", "inputResponses": other})
    assert set(asked["result"]["inputRequests"]) == {"name"}
    assert "requestState" not in asked["result"]  # there is no state to keep
    both = {**other, "name": {"action": "accept", "content": {"name": "Ada"}}}
    answered = await asking.modern().once("tools/call", {"name": "named", "inputResponses": both})
    assert answered["result"]["resultType"] == "complete"


async def test_only_open_requests_are_sent_again(asking: LocalGateway) -> None:
    peer = asking.modern()
    name = {"action": "accept", "content": {"name": "Ada"}}
    asked = (await peer.once("tools/call", {"name": "together", "inputResponses": {"first": name}}))["result"]
    assert set(asked["inputRequests"]) == {"second"}
    retry = {"name": "together", "inputResponses": {"second": name}, "requestState": asked["requestState"]}
    assert (await peer.once("tools/call", retry))["result"]["content"][0]["text"] == "accept accept"


async def test_too_large_state_fails_the_call(asking: LocalGateway) -> None:
    message = await asking.modern().once("tools/call", {"name": "long_winded", "arguments": {"size": 70_000}})
    assert message["result"]["isError"]
    assert "exceed 65536 bytes" in message["result"]["content"][0]["text"]
