"""Lists of tools, resources and prompts, page by page, in the form of each revision."""

from typing import Final

import pytest

from gateway.json_types import Json
from tests.behaviour.cells import LATEST, cells, since
from tests.behaviour.client import Client, listed, named
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")

LISTS: Final = {
    "tools/list": ("tools", 21),
    "resources/list": ("resources", 14),
    "resources/templates/list": ("resourceTemplates", 2),
    "prompts/list": ("prompts", 5),
}
TOOL: Final = {
    "name": "2024-11-05",
    "description": "2024-11-05",
    "inputSchema": "2024-11-05",
    "annotations": "2025-03-26",
    "title": "2025-06-18",
    "_meta": "2025-06-18",
    "icons": "2025-11-25",
}
RESOURCE: Final = {
    "uri": "2024-11-05",
    "name": "2024-11-05",
    "description": "2024-11-05",
    "mimeType": "2024-11-05",
    "annotations": "2024-11-05",
    "title": "2025-06-18",
    "_meta": "2025-06-18",
    "icons": "2025-11-25",
}
TEMPLATE: Final = {
    "uriTemplate": "2024-11-05",
    "name": "2024-11-05",
    "mimeType": "2024-11-05",
    "title": "2025-06-18",
    "icons": "2025-11-25",
}
PROMPT: Final = {
    "name": "2024-11-05",
    "description": "2024-11-05",
    "title": "2025-06-18",
    "_meta": "2025-06-18",
    "icons": "2025-11-25",
}
ARGUMENT: Final = {
    "name": "2024-11-05",
    "description": "2024-11-05",
    "required": "2024-11-05",
    "title": "2025-06-18",
}
FOREIGN: Final[list[Json]] = ["", "4", "W10", "eyJvZmZzZXQiOjR9.c2lnbmF0dXJl", "ü", 4, {}, []]
CACHE_HINTS: Final = {"ttlMs": 7000, "cacheScope": "public", "resultType": "complete"}


@cells()
@pytest.mark.parametrize("method", LISTS)
@requirement("pagination/walk", "tools/order")
async def test_pages_contain_each_entry_once_in_stable_order(client: Client, method: str) -> None:
    member, size = LISTS[method]
    names = [entry["name"] for entry in await listed(client, method, member)]
    assert len(names) == len(set(names)) == size
    assert names == [entry["name"] for entry in await listed(client, method, member)]


@cells()
@pytest.mark.parametrize("method", LISTS)
@requirement("pagination/page", "caching/hints")
async def test_page_is_limited_and_has_a_ttl(client: Client, method: str) -> None:
    member, size = LISTS[method]
    result = (await client.ask(method)).result
    assert len(result[member]) == min(size, 4)
    assert ("nextCursor" in result) == (size > 4)
    hints = {name: value for name, value in result.items() if name in CACHE_HINTS}
    assert hints == (CACHE_HINTS if client.cell.is_modern else {})


@cells()
@pytest.mark.parametrize("method", LISTS)
@requirement("pagination/invalid-cursor")
async def test_foreign_cursor_is_invalid_params(client: Client, method: str) -> None:
    for cursor in FOREIGN:
        answer = await client.ask(method, {"cursor": cursor})
        assert answer.error["code"] == -32602, cursor
        assert answer.status in {None, 200}


@cells()
@requirement("pagination/invalid-cursor")
async def test_cursor_is_valid_for_one_list(client: Client) -> None:
    cursor = (await client.ask("tools/list")).result["nextCursor"]
    for method in ("prompts/list", "resources/list", "resources/templates/list"):
        assert (await client.ask(method, {"cursor": cursor})).error["code"] == -32602
    assert (await client.ask("tools/list", {"cursor": cursor + "="})).error["code"] == -32602
    assert (await client.ask("tools/list", {"cursor": cursor})).result["tools"]


@cells()
@requirement("pagination/stale-cursor")
async def test_cursor_expires_with_its_list(client: Client) -> None:
    cursor = (await client.ask("tools/list")).result["nextCursor"]
    await client.call("switch", kind="tools", name="sometimes", on=False)
    try:
        answer = await client.ask("tools/list", {"cursor": cursor})
        assert answer.error["code"] == -32602
        assert "sometimes" not in {tool["name"] for tool in await listed(client, "tools/list", "tools")}
    finally:
        await client.call("switch", kind="tools", name="sometimes", on=True)
    assert (await client.ask("tools/list", {"cursor": cursor})).result["tools"]


@cells()
@requirement("tools/definition")
async def test_tool_has_the_fields_of_its_revision(client: Client) -> None:
    tool = named(await listed(client, "tools/list", "tools"), "say")
    assert tool.keys() == since(TOOL, client.cell.revision)
    assert tool["inputSchema"]["type"] == "object"
    if "annotations" in tool:
        assert tool["annotations"] == {
            "title": "Say it again",
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        }
    if "icons" in tool:
        assert tool["icons"] == [
            {"src": "https://house.example/icon.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}
        ]


@cells()
@requirement("tools/output-schema")
async def test_output_schema_is_an_object_before_2026_07_28(client: Client) -> None:
    tools = await listed(client, "tools/list", "tools")
    revision = client.cell.revision
    assert ("outputSchema" in named(tools, "figures")) == (revision >= "2025-06-18")
    assert ("outputSchema" in named(tools, "row")) == (revision >= "2026-07-28")


@cells()
@requirement("tools/input-schema")
async def test_property_schema_is_an_object_before_2026_07_28(client: Client) -> None:
    properties = named(await listed(client, "tools/list", "tools"), "anything")["inputSchema"]["properties"]
    plain: Json = {"whatever": {}, "never": {"not": {}}}
    assert properties == ({"whatever": True, "never": False} if client.cell.is_modern else plain)


@cells()
@requirement("resources/definition")
async def test_resource_has_the_fields_of_its_revision(client: Client) -> None:
    note = named(await listed(client, "resources/list", "resources"), "note")
    assert note.keys() == since(RESOURCE, client.cell.revision)
    last_modified = {"lastModified": "2026-01-02T03:04:05Z"} if client.cell.revision >= "2025-06-18" else {}
    assert note["annotations"] == {"audience": ["user"], "priority": 0.5, **last_modified}


@cells()
@requirement("resources/definition")
async def test_file_has_its_size_and_modification_time(client: Client) -> None:
    resources = await listed(client, "resources/list", "resources")
    [file] = [entry for entry in resources if entry["uri"] == "shelf:///a%20b.txt"]
    assert (file["size"], file["mimeType"]) == (6, "text/plain")
    assert ("lastModified" in file["annotations"]) == (client.cell.revision >= "2025-06-18")
    [contents] = (await client.ask("resources/read", {"uri": file["uri"]})).result["contents"]
    assert (contents["uri"], contents["text"]) == (file["uri"], "a and ")


@cells()
@requirement("resources/template-definition")
async def test_template_has_the_fields_of_its_revision(client: Client) -> None:
    template = named(await listed(client, "resources/templates/list", "resourceTemplates"), "guest")
    assert template.keys() == since(TEMPLATE, client.cell.revision)
    assert template["uriTemplate"] == "test://guest/{name}"


@cells()
@requirement("prompts/definition")
async def test_prompt_has_the_fields_of_its_revision(client: Client) -> None:
    prompts = await listed(client, "prompts/list", "prompts")
    assert named(prompts, "plain").keys() == since(PROMPT, client.cell.revision)
    assert named(prompts, "asks")["arguments"][0].keys() == since(ARGUMENT, client.cell.revision)


@cells(since=LATEST)
@requirement("base/server-info-in-meta")
async def test_modern_results_contain_server_info(client: Client) -> None:
    for method in LISTS:
        info = (await client.ask(method)).result["_meta"]["io.modelcontextprotocol/serverInfo"]
        assert (info["name"], info["version"]) == ("house", "3.2.1")
