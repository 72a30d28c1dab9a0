"""What a client of 2026-07-28 brings along when it tries again."""

import pytest

from gateway.json_types import Json
from tests.protocol.peers import House

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("garbage", [None, [], 7, "yes", True, [{"name": {"action": "accept"}}]])
async def test_answers_that_are_none_are_refused(asking: House, garbage: Json) -> None:
    for tool in ("named", "steps"):
        message = await asking.modern().once("tools/call", {"name": tool, "inputResponses": garbage})
        assert message["error"]["code"] == -32602


@pytest.mark.parametrize(
    "garbage",
    [None, [], 7, {}, {"action": "maybe"}, {"action": "accept"}, {"action": "accept", "content": {"name": 7}}],
)
async def test_an_answer_that_does_not_fit_is_refused(asking: House, garbage: Json) -> None:
    message = await asking.modern().once("tools/call", {"name": "named", "inputResponses": {"name": garbage}})
    assert message["error"]["code"] == -32602
    assert message["error"]["data"] == {"key": "name"}


async def test_answers_to_what_was_not_asked_are_ignored(asking: House) -> None:
    other = {"other": {"action": "accept"}, "mcp-gateway.confirm": 7}
    asked = await asking.modern().once("tools/call", {"name": "named", "inputResponses": other})
    assert set(asked["result"]["inputRequests"]) == {"name"}
    assert "requestState" not in asked["result"]  # there is nothing to carry
    both = {**other, "name": {"action": "accept", "content": {"name": "Ada"}}}
    answered = await asking.modern().once("tools/call", {"name": "named", "inputResponses": both})
    assert answered["result"]["resultType"] == "complete"


async def test_of_several_questions_only_the_open_ones_are_asked_again(asking: House) -> None:
    peer = asking.modern()
    name = {"action": "accept", "content": {"name": "Ada"}}
    asked = (await peer.once("tools/call", {"name": "together", "inputResponses": {"first": name}}))["result"]
    assert set(asked["inputRequests"]) == {"second"}
    retry = {"name": "together", "inputResponses": {"second": name}, "requestState": asked["requestState"]}
    assert (await peer.once("tools/call", retry))["result"]["content"][0]["text"] == "accept accept"


async def test_what_does_not_fit_a_state_is_a_clear_failure(asking: House) -> None:
    message = await asking.modern().once("tools/call", {"name": "long_winded", "arguments": {"size": 70_000}})
    assert message["result"]["isError"]
    assert "more than 65536 bytes" in message["result"]["content"][0]["text"]
