"""Recognition of modern messages, and the checks of the envelope."""

import pytest

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json
from gateway.protocol.envelope import Envelope, is_modern, open_envelope
from gateway.wire.jsonrpc import Batch, Message, Notification, Request, Response

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
HEADER = "mcp-protocol-version"

WHOLE = {VERSION: "2026-07-28", CAPABILITIES: {}}


def request(**fields: Json) -> Request:
    return Request(1, "tools/list", {"_meta": fields})


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


@pytest.mark.parametrize(
    ("fields", "header", "code"),
    [
        (WHOLE, None, ErrorCode.HEADER_MISMATCH),
        (WHOLE, "2025-11-25", ErrorCode.HEADER_MISMATCH),
        ({**WHOLE, VERSION: "2025-11-25"}, "2026-07-28", ErrorCode.HEADER_MISMATCH),
        ({**WHOLE, VERSION: "v999.0.0"}, "2026-07-28", ErrorCode.HEADER_MISMATCH),
        ({**WHOLE, VERSION: "2025-11-25"}, "2025-11-25", ErrorCode.UNSUPPORTED_PROTOCOL_VERSION),
        ({**WHOLE, VERSION: "v999.0.0"}, "v999.0.0", ErrorCode.UNSUPPORTED_PROTOCOL_VERSION),
        ({}, "2027-01-01", ErrorCode.UNSUPPORTED_PROTOCOL_VERSION),
        ({}, "2026-07-28", ErrorCode.INVALID_PARAMS),
        ({VERSION: "2026-07-28"}, "2026-07-28", ErrorCode.INVALID_PARAMS),
        ({CAPABILITIES: {}}, "2026-07-28", ErrorCode.INVALID_PARAMS),
        ({VERSION: 7, CAPABILITIES: {}}, "2026-07-28", ErrorCode.INVALID_PARAMS),
        ({**WHOLE, CAPABILITIES: []}, "2026-07-28", ErrorCode.INVALID_PARAMS),
        ({**WHOLE, CLIENT: "me"}, "2026-07-28", ErrorCode.INVALID_PARAMS),
        ({**WHOLE, LOG_LEVEL: "loud"}, "2026-07-28", ErrorCode.INVALID_PARAMS),
    ],
)
def test_envelope_error_codes(fields: dict[str, Json], header: str | None, code: ErrorCode) -> None:
    opened = open_envelope(request(**fields), headers={} if header is None else {HEADER: header})
    assert isinstance(opened, RpcError)
    assert opened.code == code


def test_unsupported_version_error_lists_supported_versions() -> None:
    opened = open_envelope(request(**{**WHOLE, VERSION: "2099-01-01"}), headers=None)
    assert isinstance(opened, RpcError)
    assert opened.data == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


def test_envelope_without_header_fields() -> None:
    opened = open_envelope(request(**WHOLE, **{CLIENT: {"name": "c"}, LOG_LEVEL: "info", "x/y": 1}), headers=None)
    assert opened == Envelope(revision="2026-07-28", client_info={"name": "c"}, capabilities={}, log_level="info")
