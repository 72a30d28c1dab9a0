"""Messages at log level debug."""

from gateway.errors import ErrorCode
from gateway.protocol.message_log import LoggedExchange
from gateway.wire.jsonrpc import Batch, InvalidMessageError, Notification, Request, Response
from tests.captured_logs import capture_logs
from tests.protocol.peers import LocalGateway


async def test_messages_of_every_kind_are_logged(asking: LocalGateway) -> None:
    peer, catalog = asking.modern(), asking.dispatcher.store.current
    invalid = InvalidMessageError(ErrorCode.PARSE_ERROR, "The message is not JSON")
    entries = (Request(1, "ping", {}), Notification("a/b", {"x": 1}), Response(2, {"y": 1}), invalid)
    with capture_logs() as logs:
        LoggedExchange(peer).received(Batch(entries), catalog)
    assert [each["message"] for each in logs if each["event"] == "message received"] == [
        [
            {"id": 1, "method": "ping", "params": {}},
            {"method": "a/b", "params": {"x": 1}},
            {"id": 2, "result": {"y": 1}, "error": None},
            "The message is not JSON",
        ]
    ]
