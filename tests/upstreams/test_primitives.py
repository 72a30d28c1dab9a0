"""Tools, resources, templates, prompts and completions of upstreams of each era and transport."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.json_types import Json, JsonObject
from gateway.transports.memory import Listener
from tests.behaviour.inside import Client, product
from tests.upstreams.upstream_servers import DIALECTS, Dialect, reached

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DIALECTS, ids=str)
async def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    dialect: Dialect = request.param
    folder = tmp_path_factory.mktemp(str(dialect))
    async with reached(dialect) as entry, product(folder, f"upstreams:\n  shelf:\n    {entry}\n") as client:
        yield client


def into(received: list[JsonObject]) -> Listener:
    async def take(message: JsonObject) -> None:
        received.append(message)

    return take


async def listed(client: Client, method: str, member: str) -> dict[str, JsonObject]:
    return {each["name"]: each for each in (await client.request(method))[member]}


async def test_tools_are_listed_unchanged_with_a_prefix(client: Client) -> None:
    tools = await listed(client, "tools/list", "tools")

    assert list(tools)[:3] == ["shelf_add", "shelf_echo", "shelf_fail"]
    assert tools["shelf_add"]["description"] == "Add two numbers."
    assert tools["shelf_add"]["annotations"]["readOnlyHint"] is True
    assert tools["shelf_add"]["inputSchema"]["required"] == ["a", "b"]
    assert tools["shelf_add"]["outputSchema"]["type"] == "object"


async def test_call_returns_text_and_structured_content(client: Client) -> None:
    result = await client.call("shelf_add", a=2, b=3)

    assert result["structuredContent"] == {"sum": 5}
    assert result["content"] == [{"type": "text", "text": '{"sum":5}'}]


async def test_failed_call_is_an_error(client: Client) -> None:
    result = await client.call("shelf_fail")

    assert (result["isError"], result["content"][0]["text"]) == (True, "it went wrong")


async def test_arguments_are_validated_by_the_gateway(client: Client) -> None:
    result = await client.call("shelf_add", a="x", b=1)

    assert result["isError"] is True
    assert "/a" in result["content"][0]["text"]


async def test_images_and_links_are_unchanged(client: Client) -> None:
    kinds = [block["type"] for block in (await client.call("shelf_picture"))["content"]]

    assert kinds == ["text", "image", "resource_link"]


async def test_resources_are_listed_and_read(client: Client) -> None:
    resources = await listed(client, "resources/list", "resources")

    assert resources["note"]["uri"] == "note://one"
    assert await client.read("note://one") == {"uri": "note://one", "mimeType": "text/plain", "text": "the first note"}


async def test_templates_are_listed_and_read(client: Client) -> None:
    templates = await listed(client, "resources/templates/list", "resourceTemplates")

    assert templates["page"]["uriTemplate"] == "page://{number}"
    assert (await client.read("page://7"))["text"] == "page 7"


async def test_prompts_are_listed_and_returned(client: Client) -> None:
    prompts = await listed(client, "prompts/list", "prompts")

    assert prompts["shelf_review"]["arguments"] == [{"name": "text", "description": "what", "required": True}]
    assert await client.prompt("shelf_review", text="x") == [
        {"role": "user", "content": {"type": "text", "text": "Review x"}}
    ]


async def test_control_characters_are_removed_from_messages(client: Client) -> None:
    assert await client.prompt("shelf_review", text="x\x1b[2J\x9b31my\0") == [
        {"role": "user", "content": {"type": "text", "text": "Review xy"}}
    ]


@pytest.mark.parametrize(
    ("reference", "name", "value", "expected"),
    [
        ({"type": "ref/prompt", "name": "shelf_review"}, "text", "al", ["alpha"]),
        ({"type": "ref/resource", "uri": "page://{number}"}, "number", "1", ["1", "10"]),
    ],
)
async def test_arguments_are_completed_by_the_upstream(
    client: Client, reference: Json, name: str, value: str, expected: list[str]
) -> None:
    params = {"ref": reference, "argument": {"name": name, "value": value}}

    assert (await client.request("completion/complete", params))["completion"]["values"] == expected


async def test_progress_has_the_clients_token(client: Client) -> None:
    received: list[JsonObject] = []
    params = {"name": "shelf_count", "arguments": {"to": 3}, "_meta": {"progressToken": "mine"}}

    await client.request("tools/call", params, on_notification=into(received))

    progress = [each["params"] for each in received if each["method"] == "notifications/progress"]
    assert progress == [
        {"progressToken": "mine", "progress": number, "total": 3, "message": f"step {number}"} for number in (1, 2, 3)
    ]


async def test_log_messages_have_the_name_of_the_upstream(client: Client) -> None:
    received: list[JsonObject] = []
    fields = {"io.modelcontextprotocol/logLevel": "info"}

    await client.request(
        "tools/call",
        {"name": "shelf_count", "arguments": {"to": 1}, "_meta": fields},
        on_notification=into(received),
    )

    [message] = [each["params"] for each in received if each["method"] == "notifications/message"]
    assert message == {"level": "warning", "logger": "shelf/counter", "data": {"number": 1}}
