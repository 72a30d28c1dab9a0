"""Invalid parameters cause error -32602, whose message names the parameter."""

import pytest

from gateway.json_types import Json
from tests.protocol.peers import LegacyPeer, LocalGateway, ModernPeer


@pytest.mark.parametrize(
    ("notifications", "message"),
    [
        ([], "`notifications` must be an object"),
        ({"toolsListChanged": "yes"}, "`notifications.toolsListChanged` must be a boolean"),
        ({"taskIds": [1]}, "`notifications.taskIds` must be a list of at most 1000 ids"),
        ({"taskIds": ["id"] * 1001}, "`notifications.taskIds` must be a list of at most 1000 ids"),
    ],
)
async def test_invalid_filter_of_a_subscription_is_an_error(
    peer: ModernPeer, notifications: Json, message: str
) -> None:
    answer = await peer.once("subscriptions/listen", {"notifications": notifications})
    assert (answer["error"]["code"], answer["error"]["message"]) == (-32602, message)


@pytest.mark.parametrize("level", ["loud", None, 1])
async def test_unknown_log_level_is_an_error(asking: LocalGateway, level: Json) -> None:
    peer: LegacyPeer = await asking.legacy()
    answer = await peer.request("logging/setLevel", {"level": level})
    assert answer["error"]["code"] == -32602
    assert answer["error"]["message"].startswith("`level` must be one of debug, ")
    assert peer.session.log_level is None


async def test_prompt_arguments_must_be_strings(asking: LocalGateway) -> None:
    answer = await asking.modern().once("prompts/get", {"name": "any", "arguments": {"city": 1}})
    assert answer["error"]["message"] == "`arguments.city` must be a string"
