"""The check of messages against the official schemas detects invalid messages."""

import pytest

from gateway.json_types import Json
from tests.conformance.suite import the_suite
from tests.conformance.wire_schemas import WireSchemas

TOOL = {"name": "say", "inputSchema": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def schemas() -> WireSchemas:
    return WireSchemas(the_suite().schemas())


def result(**members: Json) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": 1, "result": members}


MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}


@pytest.mark.parametrize(
    ("revision", "method", "message"),
    [
        ("2024-11-05", "tools/list", result(tools=[TOOL | {"annotations": {}}])),
        ("2025-03-26", "tools/list", result(tools=[TOOL | {"title": "Say"}])),
        ("2025-06-18", "tools/list", result(tools=[TOOL | {"icons": []}])),
        ("2025-11-25", "tools/list", result(tools=[TOOL], ttlMs=1)),
        ("2026-07-28", "tools/list", result(tools=[TOOL])),
        ("2026-07-28", "tools/list", result(tools=[TOOL | {"execution": {}}], **MODERN)),
        ("2024-11-05", "tools/call", result(content=[{"type": "audio", "data": "", "mimeType": "audio/wav"}])),
        ("2025-03-26", "tools/call", result(content=[{"type": "resource_link", "uri": "a:b", "name": "b"}])),
        ("2025-03-26", "tools/call", result(content=[], structuredContent={})),
        ("2025-11-25", "tools/call", result(content=[], structuredContent=[1])),
        ("2025-11-25", "tools/call", {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": ""}}),
        ("2026-07-28", "tools/call", {"jsonrpc": "2.0", "id": 1, "error": {"code": -32021, "message": ""}}),
        (
            "2024-11-05",
            None,
            {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": 1, "progress": 1, "message": "half"},
            },
        ),
    ],
    ids=str,
)
def test_members_missing_in_a_revision_are_errors(
    schemas: WireSchemas, revision: str, method: str | None, message: dict[str, Json]
) -> None:
    assert schemas.problems(revision, message, answers=method)


def test_members_of_a_revision_are_valid(schemas: WireSchemas) -> None:
    assert schemas.problems("2024-11-05", result(tools=[TOOL]), answers="tools/list") == []
    assert schemas.problems("2026-07-28", result(tools=[TOOL], **MODERN), answers="tools/list") == []
    error = {"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}}
    assert schemas.problems("2025-11-25", error, answers=None) == []
