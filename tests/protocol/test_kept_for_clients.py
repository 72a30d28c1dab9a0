"""Limits of the data that is stored for a session: client info, capabilities, subscriptions."""

from gateway.access.identity import ANONYMOUS
from gateway.json_types import JsonObject
from gateway.protocol.methods import lifecycle

HELLO: JsonObject = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def test_client_icons_are_not_stored() -> None:
    icons = [{"src": "data:image/png;base64," + "A" * 1_000_000}]
    session = lifecycle.open_session(
        {**HELLO, "clientInfo": {**HELLO["clientInfo"], "icons": icons}}, identity=ANONYMOUS
    )
    assert session.client_info == HELLO["clientInfo"]
