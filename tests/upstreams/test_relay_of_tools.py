"""Tools of upstreams with unusual schemas and results."""

from pathlib import Path

import pytest

from gateway.json_types import Json, JsonObject
from tests.upstreams.scripted_server import OBJECT, Answers, relayed


def with_tools(*schemas: Json, **more: Json) -> Answers:
    tools = [{"name": f"t{index}", "inputSchema": schema, **more} for index, schema in enumerate(schemas)]
    return {
        "tools/list": {"tools": tools},
        "tools/call": lambda params: {"content": [{"type": "text", "text": str(params["arguments"])}]},
    }


def text(**members: Json) -> JsonObject:
    return {"type": "object", "properties": {"a": {"type": "string", **members}, "n": {"type": "integer"}}}


UNSUPPORTED_SCHEMAS: list[JsonObject] = [
    text(pattern=r"^[^\0]*$"),
    text(pattern="^(?<n>x)\\k<n>$"),
    text(pattern="^.{1,2000}$"),
    text(pattern="((("),
    text(pattern="^[[:alpha:]]+$"),
    {
        **OBJECT,
        "$defs": {"X": {"pattern": "[^]("}},
        "properties": {"a": {"$ref": "#/$defs/X"}, "n": {"type": "integer"}},
    },
    {**OBJECT, "properties": {"a": {"$ref": "https://example.com/schema.json"}, "n": {"type": "integer"}}},
    {**OBJECT, "properties": {"a": {"minimum": 1, "exclusiveMinimum": True}, "n": {"type": "integer"}}},
    {
        **OBJECT,
        "$schema": "http://json-schema.org/draft-04/schema#",
        "id": "x",
        "properties": {"n": {"type": "integer"}},
    },
    {**OBJECT, "patternProperties": {"((": {"type": "null"}}, "additionalProperties": False},
    {**OBJECT, "properties": {"a": "a string", "n": {"type": ["integer"]}}, "additionalProperties": False},
    {**OBJECT, "$schema": "https://example.com/my-own"},
]


@pytest.mark.parametrize("more", ["", ", validate: false"])
async def test_tool_with_unsupported_schema_is_callable(tmp_path: Path, more: str) -> None:
    async with relayed(tmp_path, with_tools(*UNSUPPORTED_SCHEMAS, outputSchema=text(pattern="(((")), more) as (
        _,
        client,
        running,
    ):
        tools = (await client.request("tools/list"))["tools"]
        assert [tool["inputSchema"] for tool in tools] == UNSUPPORTED_SCHEMAS
        assert [tool["outputSchema"] for tool in tools] == [text(pattern="(((")] * len(tools)
        answers = [await client.text(tool["name"], a="xx", n=1) for tool in tools]
        warnings = [each for each in running.status()["warnings"] if "ignores unsupported parts" in each]

    assert len(warnings) == (0 if more else len(UNSUPPORTED_SCHEMAS) - 1)  # draft-04 is checked completely
    assert answers == ["{'a': 'xx', 'n': 1}"] * len(UNSUPPORTED_SCHEMAS)


async def test_supported_part_of_a_schema_is_checked(tmp_path: Path) -> None:
    schemas = [schema for schema in UNSUPPORTED_SCHEMAS[:8] if "$defs" not in schema]
    async with relayed(tmp_path, with_tools(*schemas)) as (_, client, _):
        answers = [await client.call(f"t{index}", a="xx", n="many") for index in range(len(schemas))]

    assert all("/n must be an integer" in answer["content"][0]["text"] for answer in answers)


@pytest.mark.parametrize("root", [{}, {"properties": []}, {"type": ["object", "null"]}, {"required": "a"}, [], None])
async def test_root_of_input_schema_is_an_object(tmp_path: Path, root: Json) -> None:
    async with relayed(tmp_path, with_tools(root)) as (_, client, _):
        [tool] = (await client.request("tools/list"))["tools"]
        assert tool["inputSchema"] == OBJECT
        assert await client.text("t0") == "{}"


async def test_required_argument_with_default_is_optional(tmp_path: Path) -> None:
    schema = {**text(default="x"), "required": ["a", "n"]}
    async with relayed(tmp_path, with_tools(schema)) as (_, client, _):
        assert await client.text("t0", n=1) == "{'n': 1}"
        assert "/n is required" in (await client.text("t0"))


async def test_costly_patterns_are_left_to_the_upstream(tmp_path: Path) -> None:
    async with relayed(tmp_path, with_tools(text(pattern=r"^(?!y)[\s\S]*$"))) as (_, client, _):
        assert len(await client.text("t0", a="x" * 50_000)) > 50_000
        assert "/a" in await client.text("t0", a="y")


async def test_tool_with_required_task_support_is_called_as_a_task(tmp_path: Path) -> None:
    answers: Answers = {
        **with_tools(OBJECT, execution={"taskSupport": "required"}),
        "tools/call": {"task": {"taskId": "t1", "status": "working"}},
        "tasks/result": {"content": [{"type": "text", "text": "done"}]},
    }
    async with relayed(tmp_path, answers) as (server, client, _):
        assert "execution" not in (await client.request("tools/list"))["tools"][0]
        assert await client.text("t0") == "done"

    assert server.params_of("tools/call")[0]["task"] == {"ttl": 60_000}
    assert server.params_of("tasks/result")[0]["taskId"] == "t1"


@pytest.mark.parametrize(
    "content", ["some text", ["some text"], {"type": "text", "text": "some text"}], ids=["text", "list", "block"]
)
async def test_content_of_other_types_becomes_blocks(tmp_path: Path, content: Json) -> None:
    async with relayed(tmp_path, {**with_tools(OBJECT), "tools/call": {"content": content}}) as (_, client, _):
        assert await client.text("t0") == "some text"


async def test_tool_that_is_listed_twice_is_offered_once(tmp_path: Path) -> None:
    tool = {"name": "t0", "inputSchema": OBJECT}
    async with relayed(tmp_path, {"tools/list": {"tools": [tool, tool]}}) as (_, client, running):
        tools = (await client.request("tools/list"))["tools"]
        warnings = running.status()["warnings"]

    assert [each["name"] for each in tools] == ["t0"]
    assert any("the upstream lists it twice" in each for each in warnings)


async def test_response_without_a_list_is_reported(tmp_path: Path) -> None:
    async with relayed(tmp_path, {"tools/list": {}}) as (_, _, running):
        [upstream] = running.status()["upstreams"].values()

    assert upstream["missing"] == {"tools": "responds to tools/list without `tools`"}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [{"type": "json", "json": {"a": 1}}]}, '{"type":"json","json":{"a":1}}'),
        ({"content": [{"type": "text", "text": {"a": 1}}]}, '{"a":1}'),
        ({"content": [{"type": "text", "text": 5}]}, "5"),
        ({"content": [{"text": "no type"}]}, '{"text":"no type"}'),
        ({"content": [[{"type": "text", "text": "nested"}]]}, '[{"type":"text","text":"nested"}]'),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:b"}}]},
            '{"type":"resource","resource":{"uri":"a:b"}}',
        ),
        ({"content": [{"type": 7}]}, '{"type":7}'),
        ({"content": [{"type": "text", "text": None}]}, ""),
        ({"content": [None]}, ""),
        ({"content": [{"type": "image", "data": "aGk="}]}, "[an invalid image is left out]"),
        ({"toolResult": {"a": 1}}, '{"toolResult":{"a":1}}'),
        ({"temperature": 5, "_meta": {}}, '{"temperature":5}'),
    ],
)
async def test_invalid_content_becomes_text(tmp_path: Path, result: Json, text: str) -> None:
    async with relayed(tmp_path, {**with_tools(OBJECT), "tools/call": result}) as (_, client, _):
        assert await client.text("t0") == text


async def test_is_error_can_be_text(tmp_path: Path) -> None:
    answers: Answers = {**with_tools(OBJECT), "tools/call": {"content": "no", "isError": "true"}}
    async with relayed(tmp_path, answers) as (_, client, _):
        assert (await client.call("t0"))["isError"] is True


@pytest.mark.parametrize(
    ("server", "deviation"),
    [
        ({"capabilities": {}}, "declares no capabilities"),
        ({"capabilities": None}, "declares no capabilities"),
        ({"protocolVersion": "1.0"}, "unknown revision '1.0'. The gateway uses 2024-11-05"),
        ({"protocolVersion": "2025-07-01"}, "unknown revision '2025-07-01'. The gateway uses 2025-06-18"),
        ({"protocolVersion": None}, "unknown revision None. The gateway uses 2024-11-05"),
    ],
)
async def test_deviating_handshake_is_accepted_with_a_warning(
    tmp_path: Path, server: JsonObject, deviation: str
) -> None:
    handshake = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}, **server}
    async with relayed(tmp_path, {**with_tools(OBJECT), "initialize": handshake}) as (_, client, running):
        assert await client.text("t0") == "{}"
        [warning] = [each for each in running.status()["warnings"] if "upstreams.up: " in each]
    assert deviation in warning


async def test_rejected_notification_is_accepted_with_a_warning_without_the_body(tmp_path: Path) -> None:
    answers: Answers = {**with_tools(OBJECT), "notifications/initialized": "request 4711 failed"}
    async with relayed(tmp_path, answers) as (_, client, running):
        assert await client.text("t0") == "{}"
        [warning] = [each for each in running.status()["warnings"] if "upstreams.up: " in each]
    assert "rejects `notifications/initialized` (responds with 500 Internal Server Error)" in warning


async def test_null_is_an_empty_list(tmp_path: Path) -> None:
    answers: Answers = {**with_tools(OBJECT), "prompts/list": {"prompts": None}}
    async with relayed(tmp_path, answers) as (_, client, running):
        assert await client.text("t0") == "{}"
        [server] = running.status()["upstreams"].values()
        assert "missing" not in server


async def test_name_that_clients_refuse_can_be_overridden(tmp_path: Path) -> None:
    listed: Json = [{"name": name, "inputSchema": OBJECT} for name in ("get weather", "ns/tool")]
    renamed = ", tools: {override: {ns/tool: {name: tool}}}"
    async with relayed(tmp_path, {"tools/list": {"tools": listed}}, renamed) as (_, client, running):
        tools = (await client.request("tools/list"))["tools"]
        [warning] = [each for each in running.status()["warnings"] if "not offered" in each]

    assert [each["name"] for each in tools] == ["tool"]
    assert "`get weather` is not offered: only the characters" in warning
