"""Recognition of modern messages, and the checks of the envelope."""

import pytest

from gateway.protocol.envelope import Envelope, is_modern, open_envelope
from gateway.wire.jsonrpc import Batch, Message, Notification, Request, Response

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"


@pytest.mark.parametrize(
    ("message", "header", "expected"),
    [
        (Request(1, "m", {}), None, False),
        (Request(1, "m", {}), "2025-11-25", False),
        (Request(1, "m", {}), "2026-07-28", True),
        (Request(1, "m", {}), "2027-01-01", True),
        (Request(1, "m", {}), "v999.0.0", False),
        (Request(1, "m", {"_meta": {VERSION: "x"}}), None, True),
        (Request(1, "m", {"_meta": {CAPABILITIES: {}}}), None, True),
        (Notification("m", {"_meta": {CLIENT: {}}}), None, True),
        (Request(1, "m", {"_meta": {"progressToken": 1}}), None, False),
        (Request(1, "m", {"_meta": {"io.modelcontextprotocol/related-task": {}}}), None, False),
        (Request(1, "m", {"_meta": "text"}), None, False),
        (Response(1, {}), "2026-07-28", True),
        (Batch(()), None, False),
    ],
)
def test_era_of_messages(message: Message, header: str | None, expected: bool) -> None:  # noqa: FBT001 - a table's column
    assert is_modern(message, version_header=header) is expected


def test_envelope_without_header_fields() -> None:
    fields = {VERSION: "2026-07-28", CAPABILITIES: {}, CLIENT: {"name": "c"}, LOG_LEVEL: "info", "x/y": 1}
    opened = open_envelope(Request(1, "tools/list", {"_meta": fields}), headers=None)
    assert opened == Envelope(revision="2026-07-28", client_info={"name": "c"}, capabilities={}, log_level="info")
