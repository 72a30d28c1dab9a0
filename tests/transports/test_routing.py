"""Tests for the routing of POSTs and for HTTP statuses."""

from collections.abc import AsyncIterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import pytest
import pytest_asyncio

from gateway.json_types import Json
from tests.messages import ENVELOPE, MODERN, initialize_request, legacy_request, modern_request
from tests.transports.http_server import RunningServer, call, http_server

SESSION: Final = "the session"
"""Placeholder for the id of the test's session."""
OLD: Final = "2025-11-25"
NOTIFIED: Final = {"jsonrpc": "2.0", "method": "notifications/initialized"}
RESPONSE: Final = {"jsonrpc": "2.0", "id": 5, "result": {}}
LIST: Final = legacy_request("tools/list")
MODERN_LIST: Final = modern_request("tools/list")
STANDARD: Final = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}


UNKNOWN: Final = {"Mcp-Session-Id": "unknown"}
TASK_LIST: Final = legacy_request("tools/list", {"_meta": {"io.modelcontextprotocol/related-task": {}}})


TASK: Final = modern_request("tasks/get", {"taskId": "unknown"})
TASK_WITH_EXTENSION: Final = modern_request(
    "tasks/get",
    {
        "taskId": "unknown",
        "_meta": {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}},
    },
)


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    body: Json | bytes
    headers: dict[str, str] = field(default_factory=dict)
    _: KW_ONLY
    revision: str = OLD
    """The session's revision."""
    status: int = 200
    code: int | None = None
    """The JSON-RPC error code, if any."""
    sessions: int = 0
    """The number of additional sessions afterwards."""


def with_session(**more: str) -> dict[str, str]:
    return {"Mcp-Session-Id": SESSION, **{key.replace("_", "-"): value for key, value in more.items()}}


def standard(*, version: str = MODERN, method: str = "tools/list") -> dict[str, str]:
    return {"MCP-Protocol-Version": version, "Mcp-Method": method}


def versioned(version: str) -> dict[str, Json]:
    return modern_request("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": version}})


def without(key: str) -> dict[str, Json]:
    envelope = {name: value for name, value in ENVELOPE.items() if not name.endswith(key)}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": envelope}}


TABLE: Final = (
    Row("1 empty body", b"", status=400, code=-32700),
    Row("1 not JSON", b"{", status=400, code=-32700),
    Row("1 not UTF-8", b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', status=400, code=-32700),
    Row("1 not a message", {"hello": 1}, status=400, code=-32600),
    Row("1 id of null", {"jsonrpc": "2.0", "id": None, "method": "ping"}, status=400, code=-32600),
    Row("1 too deep", b"[" * 70 + b"]" * 70, status=400, code=-32600),
    Row("2 array without session", [LIST], status=400, code=-32600),
    Row("2 array, modern header", [LIST], STANDARD, status=400, code=-32600),
    Row("2 array of another revision", [LIST], with_session(), status=400, code=-32600),
    Row("2 array in 2025-03-26", [LIST, NOTIFIED], with_session(), revision="2025-03-26"),
    Row("2 notifications alone", [NOTIFIED], with_session(), revision="2025-03-26", status=202),
    Row("2 empty array", [], with_session(), revision="2025-03-26", status=400, code=-32600),
    Row("3 modern", MODERN_LIST, STANDARD),
    Row("3 modern, session ignored", MODERN_LIST, STANDARD | UNKNOWN),
    Row("3 modern header alone", LIST, STANDARD, status=400, code=-32602),
    Row("3 related-task is legacy", TASK_LIST, with_session()),
    Row("4 version header missing", MODERN_LIST, {"Mcp-Method": "tools/list"}, status=400, code=-32020),
    Row("5 header legacy", MODERN_LIST, standard(version=OLD), status=400, code=-32020),
    Row("5 header unknown", MODERN_LIST, standard(version="2027-01-01"), status=400, code=-32020),
    Row("5 envelope legacy", versioned(OLD), STANDARD, status=400, code=-32020),
    Row("5 envelope unknown", versioned("v999.0.0"), STANDARD, status=400, code=-32020),
    Row("6 unknown version header alone", LIST, standard(version="2027-01-01"), status=400, code=-32022),
    Row(
        "6 unknown version",
        versioned("v999.0.0"),
        standard(version="v999.0.0"),
        status=400,
        code=-32022,
    ),
    Row(
        "6 legacy version in the envelope",
        versioned(OLD),
        standard(version=OLD),
        status=400,
        code=-32022,
    ),
    Row("7 capabilities missing", without("clientCapabilities"), STANDARD, status=400, code=-32602),
    Row("7 version missing", without("protocolVersion"), STANDARD, status=400, code=-32602),
    Row("7 initialize with a modern header", initialize_request(), STANDARD, status=400, code=-32602),
    Row("8 unknown method", modern_request("nope"), standard(method="nope"), status=404, code=-32601),
    Row(
        "8 initialize in an envelope",
        modern_request("initialize"),
        standard(method="initialize"),
        status=404,
        code=-32601,
    ),
    Row("8 ping is gone", modern_request("ping"), standard(method="ping"), status=404, code=-32601),
    Row("8 method header differs", MODERN_LIST, standard(method="ping"), status=400, code=-32020),
    Row("8 extension not declared", TASK, standard(method="tasks/get"), status=400, code=-32021),
    Row("8 task's name differs", TASK_WITH_EXTENSION, standard(method="tasks/get"), status=400, code=-32020),
    Row("8 modern notification", {"jsonrpc": "2.0", "method": "notifications/x"}, STANDARD, status=202),
    Row("8 modern response", RESPONSE, STANDARD, status=400, code=-32600),
    Row("9 initialize", initialize_request(), sessions=1),
    Row("9 Mcp-Method does not switch the era", initialize_request(), {"Mcp-Method": "initialize"}, sessions=1),
    Row("9 initialize without version", legacy_request("initialize"), status=400, code=-32602),
    Row("9 initialize twice", initialize_request(), with_session(), status=400, code=-32600),
    Row("10 request without session", LIST, status=400, code=-32600),
    Row("10 notification without session", NOTIFIED, status=400, code=-32600),
    Row("10 response without session", RESPONSE, status=400, code=-32600),
    Row("11 unknown session", LIST, UNKNOWN, status=404, code=-32600),
    Row("11 initialize with an unknown session", initialize_request(), UNKNOWN, status=404, code=-32600),
    Row("12 unsupported version", LIST, with_session(MCP_Protocol_Version="1999-01-01"), status=400, code=-32600),
    Row("12 another legacy version", LIST, with_session(MCP_Protocol_Version="2025-06-18")),
    Row("13 no version header", LIST, with_session()),
    Row("matrix: notification", NOTIFIED, with_session(), status=202),
    Row("matrix: response", RESPONSE, with_session(), status=202),
    Row("matrix: unknown method", legacy_request("nope"), with_session(), code=-32601),
    Row("matrix: unknown tool", call("nope"), with_session(), code=-32602),
    Row("matrix: tool", call("echo", text="hi"), with_session()),
    Row("matrix: params as an empty list", {**LIST, "params": []}, with_session()),
    Row("matrix: ping", legacy_request("ping"), with_session()),
)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[RunningServer]:
    """A shared server, of which only sessions remain."""
    async with http_server() as it:
        yield it


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
async def test_post_is_routed_by_the_table(served: RunningServer, row: Row) -> None:
    headers = dict(row.headers)
    if headers.get("Mcp-Session-Id") == SESSION:
        headers["Mcp-Session-Id"] = await served.initialize(row.revision)
    before = len(served.sessions)
    answer = await served.send(row.body, headers)
    assert answer.status == row.status, answer
    assert _code_of(answer.text and answer.json) == row.code, answer
    assert len(served.sessions) == before + row.sessions
    assert ("Mcp-Session-Id" in answer.headers) is bool(row.sessions)


def _code_of(body: Json) -> int | None:
    if isinstance(body, list):
        assert body
        assert all("result" in entry for entry in body)
        return None
    return body["error"]["code"] if body and "error" in body else None


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"hello":1}', b"[{}]"])
@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25", MODERN])
async def test_error_without_a_readable_id_matches_its_revision(
    served: RunningServer, body: bytes, revision: str
) -> None:
    """JSON-RPC 2.0 §5 and the schemas until 2025-06-18 require null. Later ones omit the id."""
    is_legacy = revision != MODERN
    headers = {"Mcp-Session-Id": await served.initialize(revision)} if is_legacy else {"MCP-Protocol-Version": MODERN}
    answer = (await served.send(body, headers)).json
    [error] = answer if isinstance(answer, list) else [answer]
    assert error["error"]["code"] == (-32700 if body == b"{" else -32600)
    assert error.get("id", "absent") == (None if revision < "2025-11-25" and body != b"{" else "absent")


async def test_session_of_another_caller_does_not_affect_the_error(served: RunningServer) -> None:
    assert "id" not in (await served.send(b"{", {"Mcp-Session-Id": "unknown"})).json


async def test_error_contains_the_id_of_its_request(served: RunningServer) -> None:
    answer = await served.send(legacy_request("tools/list", request_id="abc"), {"Mcp-Session-Id": "unknown"})
    assert answer.json["id"] == "abc"


@pytest.mark.parametrize(
    ("method", "headers", "status", "allow"),
    [
        ("GET", {}, 400, None),
        ("GET", {"MCP-Protocol-Version": MODERN}, 405, "POST"),
        ("GET", {"MCP-Protocol-Version": OLD}, 400, None),
        ("GET", {"Mcp-Session-Id": "unknown"}, 404, None),
        ("DELETE", {}, 400, None),
        ("DELETE", {"MCP-Protocol-Version": MODERN}, 405, "POST"),
        ("DELETE", {"Mcp-Session-Id": "unknown"}, 404, None),
        ("PUT", {}, 405, "POST, GET, DELETE, OPTIONS"),
        ("PATCH", {}, 405, "POST, GET, DELETE, OPTIONS"),
        ("OPTIONS", {}, 204, "POST, GET, DELETE, OPTIONS"),
    ],
)
async def test_other_methods_get_the_status_of_the_table(
    served: RunningServer, method: str, headers: dict[str, str], status: int, allow: str | None
) -> None:
    before = len(served.sessions)
    answer = await served.send(None, headers, method=method)
    assert answer.status == status
    assert answer.headers.get("Allow") == allow
    assert len(served.sessions) == before


@pytest.mark.parametrize("path", ["/", "/mcp/more/x", "/-/", "/-/unknown", "//mcp"])
async def test_other_paths_return_404_as_json(served: RunningServer, path: str) -> None:
    answer = await served.send(None, method="GET", path=path)
    assert answer.status == 404
    assert "/mcp" in answer.json["error"]
