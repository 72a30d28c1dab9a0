"""Tool calls: arguments, results and errors."""

from typing import Final

import pytest

from gateway.json_types import Json
from tests.behaviour.cells import HTTP, LATEST, cells
from tests.behaviour.client import Client
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANNOTATIONS: Final = {"audience": ["user"], "priority": 0.5}


@cells()
@requirement("tools/call", "tools/absent-arguments", "base/result-type")
async def test_tool_is_called_with_and_without_arguments(client: Client) -> None:
    answer = await client.call("say", text="ü")
    assert answer.text == "You said ü."
    assert answer.status in {None, 200}
    assert answer.result.get("resultType") == ("complete" if client.cell.is_modern else None)
    assert answer.result.get("isError", False) is False
    assert (await client.ask("tools/call", {"name": "say"})).text == "You said nothing."
    assert (await client.call("utter", text="by an old name")).text == "You said by an old name."


@cells()
@requirement("tools/unknown")
async def test_unknown_tool_is_invalid_params(client: Client) -> None:
    for name in ("no_such", "", "Say", "say "):
        if name != "say " or not client.cell.is_http:  # header fields cannot end with a space
            answer = await client.call(name)
            assert answer.error["code"] == -32602
            assert answer.status in {None, 200}


@cells()
@requirement("tools/malformed-call")
async def test_malformed_call_is_invalid_params(client: Client) -> None:
    names: list[Json] = [{}, {"name": 3}, {"name": None}]
    for params in (*names, {"name": "say", "arguments": [1]}, {"name": "say", "arguments": "text"}):
        answer = await client.ask("tools/call", params)
        assert answer.error["code"] == -32602, params
        assert answer.status in {None, 200}


@cells()
@requirement("tools/invalid-arguments")
async def test_invalid_arguments_are_a_tool_error_for_the_model(client: Client) -> None:
    answer = await client.call("ordered", size=12, colour="green", extra=1)
    assert answer.result["isError"] is True
    for pointer in ("/size", "/colour", "extra"):
        assert pointer in answer.text
    assert (await client.call("ordered", size=3, colour="red")).text == "3 red"
    assert (await client.call("ordered", size="3", colour="red")).text == "3 red"


@cells()
@requirement("tools/execution-error")
async def test_tool_error_is_shown_and_internal_error_is_hidden(client: Client) -> None:
    refused = (await client.call("refuses")).result
    assert (refused["isError"], refused["content"][0]["text"]) == (True, "mend your call")
    broken = (await client.call("breaks")).result
    assert broken["isError"] is True
    assert "nobody should read" not in str(broken)


@cells()
@requirement("tools/protocol-error")
async def test_plugin_can_return_a_protocol_error(client: Client) -> None:
    answer = await client.call("protests")
    assert answer.error == {"code": 4242, "message": "not like this", "data": {"why": "because"}}
    assert answer.status in {None, 200}


@cells()
@requirement("tools/structured-content")
async def test_structured_content_is_sent_with_its_text(client: Client) -> None:
    revision = client.cell.revision
    figures, row = (await client.call("figures")).result, (await client.call("row")).result
    assert figures["content"] == [{"type": "text", "text": '{"total":3}'}]
    assert figures.get("structuredContent") == ({"total": 3} if revision >= "2025-06-18" else None)
    assert row["content"][0]["text"] == "[1,2,3]"
    wrapped = {"result": [1, 2, 3]} if revision >= "2025-06-18" else None
    assert row.get("structuredContent") == ([1, 2, 3] if revision >= "2026-07-28" else wrapped)


@cells()
@requirement("content/blocks")
async def test_content_is_downgraded_for_the_revision(client: Client) -> None:
    revision = client.cell.revision
    text, image, audio, embedded, blob, link = (await client.call("blocks")).result["content"]
    noted = {"lastModified": "2026-01-02T03:04:05Z"} if revision >= "2025-06-18" else {}
    assert text == {"type": "text", "text": "plain", "annotations": {**ANNOTATIONS, **noted}}
    assert image == {"type": "image", "data": "iVBORw==", "mimeType": "image/png"}
    if revision >= "2025-03-26":
        assert audio == {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}
    else:
        assert audio["type"] == "resource"
        assert (audio["resource"]["blob"], audio["resource"]["mimeType"]) == ("UklGRg==", "audio/wav")
    assert embedded["resource"] == {"uri": "test://embedded", "text": "inside", "mimeType": "text/plain"}
    assert blob["resource"]["blob"] == "AAE="
    if revision >= "2025-06-18":
        assert (link["type"], link["uri"], link["title"]) == ("resource_link", "test://note", "A note")
    else:
        assert link == {"type": "text", "text": "A note: test://note"}


@cells(since=LATEST, binding=HTTP)
@pytest.mark.parametrize(
    ("arguments", "fields", "is_taken"),
    [
        ({"region": "north"}, {"Mcp-Param-Region": "north"}, True),
        ({"region": "north"}, {"mcp-param-region": "=?base64?bm9ydGg=?="}, True),
        ({"region": "übers"}, {"Mcp-Param-Region": "=?base64?w7xiZXJz?="}, True),
        ({"level": 42}, {"Mcp-Param-Level": "42"}, True),
        ({"level": 42}, {"Mcp-Param-Level": "42.0"}, True),
        ({"deep": {"flag": True}}, {"Mcp-Param-Flag": "true"}, True),
        ({}, {}, True),
        ({}, {"Mcp-Param-Unheard-Of": "x"}, True),
        ({"region": ""}, {"mcp-param-REGION": ""}, True),
        ({"region": "=?base64?"}, {"Mcp-Param-Region": "=?base64?"}, True),
        ({"level": 10}, {"Mcp-Param-Level": "1_0"}, False),
        ({"level": 10}, {"Mcp-Param-Level": "=?base64?2aHZoA==?="}, False),  # digits that are not ASCII
        ({"level": 42}, {"Mcp-Param-Level": "nan"}, False),
        ({"level": 42}, {"Mcp-Param-Level": "9" * 5000}, False),
        ({"level": 1}, {"Mcp-Param-Level": "true"}, False),
        ({"deep": {"flag": True}}, {"Mcp-Param-Flag": "1"}, False),
        ({"region": "eu"}, {"Mcp-Param-Region": "eu, eu"}, False),
        ({"region": None}, {"Mcp-Param-Region": "eu"}, False),
        ({"region": "north"}, {}, False),
        ({"region": "north"}, {"Mcp-Param-Region": "North"}, False),
        ({"region": "north"}, {"Mcp-Param-Region": "=?base64?bm9ydGg?="}, False),
        ({"region": "north"}, {"Mcp-Param-Region": "=?base64?bm9y!dGg=?="}, False),
        ({"level": 42}, {"Mcp-Param-Level": "43"}, False),
        ({"level": 42}, {"Mcp-Param-Level": "forty-two"}, False),
        ({"deep": {"flag": True}}, {"Mcp-Param-Flag": "True"}, False),
        ({"deep": {"flag": True}}, {}, False),
        ({}, {"Mcp-Param-Region": "north"}, False),
    ],
    ids=str,
)
@requirement("headers/parameters", "headers/base64")
async def test_mirrored_arguments_must_equal_the_body(
    client: Client,
    arguments: dict[str, Json],
    fields: dict[str, str],
    is_taken: bool,  # noqa: FBT001 - a table's column
) -> None:
    client.headers.update(fields)
    answer = await client.call("regional", **arguments)
    if is_taken:
        assert answer.result.get("isError", False) is False
    else:
        assert (answer.status, answer.error["code"]) == (400, -32020)


@cells(since=LATEST, binding=HTTP)
@pytest.mark.parametrize(
    "fields",
    [
        {"Mcp-Method": None},
        {"Mcp-Method": "TOOLS/CALL"},
        {"Mcp-Method": "prompts/get"},
        {"Mcp-Name": None},
        {"Mcp-Name": "Say"},
        {"Mcp-Name": "=?base64?c2F5?"},
        {"Mcp-Name": "=?base64?c2F?="},
        {"MCP-Protocol-Version": None},
        {"MCP-Protocol-Version": "2025-11-25"},
        {"MCP-Protocol-Version": "v999.0.0"},
    ],
    ids=str,
)
@requirement("headers/standard")
async def test_standard_header_fields_must_equal_the_body(client: Client, fields: dict[str, str | None]) -> None:
    client.headers.update(fields)
    answer = await client.call("say")
    assert (answer.status, answer.error["code"]) == (400, -32020)


@cells(since=LATEST, binding=HTTP)
@pytest.mark.parametrize(
    "fields",
    [
        {"Mcp-Name": "=?base64?c2F5?="},
        {"Mcp-Session-Id": "of an older era"},
        {"Last-Event-ID": "7"},
        {"Accept": "application/json"},
        {"Accept": "*/*"},
    ],
    ids=str,
)
@requirement("headers/standard", "http/ignores-sessions")
async def test_redundant_and_unknown_header_fields_are_accepted(client: Client, fields: dict[str, str]) -> None:
    client.headers.update(fields)
    assert (await client.call("say")).text == "You said nothing."


@cells(until="2025-11-25", binding=HTTP)
@requirement("headers/legacy-ignores")
async def test_legacy_session_ignores_modern_header_fields(client: Client) -> None:
    client.headers.update({"Mcp-Method": "nonsense", "Mcp-Name": "nonsense", "Mcp-Param-Region": "south"})
    assert (await client.call("regional", region="north")).text.startswith("north")
