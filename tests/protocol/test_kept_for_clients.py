"""Limits of the data that is stored for a session: client info, capabilities, subscriptions."""

import pytest

from gateway.access.identity import ANONYMOUS
from gateway.errors import RpcError
from gateway.json_types import JsonObject
from gateway.protocol.methods import lifecycle
from gateway.protocol.methods.subscriptions import MAX_URI_LENGTH, MAX_URIS
from tests.protocol.peers import LocalGateway

HELLO: JsonObject = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def test_client_icons_are_not_stored() -> None:
    icons = [{"src": "data:image/png;base64," + "A" * 1_000_000}]
    session = lifecycle.open_session(
        {**HELLO, "clientInfo": {**HELLO["clientInfo"], "icons": icons}}, identity=ANONYMOUS
    )
    assert session.client_info == HELLO["clientInfo"]


@pytest.mark.parametrize("member", ["clientInfo", "capabilities"])
def test_client_info_and_capabilities_are_limited(member: str) -> None:
    with pytest.raises(RpcError, match=f"`{member}` is larger than 16384 bytes"):
        lifecycle.open_session({**HELLO, member: {"name": "x" * 20_000}}, identity=ANONYMOUS)
    lifecycle.open_session({**HELLO, member: {"name": "x" * 10_000}}, identity=ANONYMOUS)


async def test_subscribed_uri_length_is_limited(inside: LocalGateway) -> None:
    """`tests/attacks/test_uris.py` tests the number of URIs."""
    uri = "any:///"
    await inside.edit("resources:\n", f'resources:\n  any: {{uri: "{uri}{{+path}}", text: "{{{{ path }}}}"}}\n')
    peer = await inside.legacy()
    long = await peer.request("resources/subscribe", {"uri": uri + "x" * MAX_URI_LENGTH})
    assert "8192 characters" in long["error"]["message"]


async def test_listen_uris_are_limited_in_number_and_length(inside: LocalGateway) -> None:
    peer = inside.modern()
    for uris in (["any:///x"] * (MAX_URIS + 1), ["any:///" + "x" * MAX_URI_LENGTH]):
        wanted = {"notifications": {"resourceSubscriptions": uris}}
        assert (await peer.once("subscriptions/listen", wanted))["error"]["code"] == -32602
