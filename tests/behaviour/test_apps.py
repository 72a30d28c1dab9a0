"""MCP Apps: metadata of tools and pages."""

from pathlib import Path
from typing import Final

import pytest

from gateway.catalog.compile.apps import app_uri
from gateway.executors.invocation import Value
from gateway.json_types import JsonObject
from tests.behaviour.cells import LATEST, cells
from tests.behaviour.client import Client, listed, named
from tests.behaviour.inside import product
from tests.catalog.conftest import Compile, compiled, services
from tests.executors.recording import make_invocation
from tests.requirements import requirement

__all__ = ["compiled", "services"]

URI: Final = "ui://house/ordered.html"
TYPE: Final = "text/html;profile=mcp-app"
PAGE: Final = {
    "csp": {"connectDomains": ["https://api.house.example"], "resourceDomains": []},
    "permissions": {"camera": {}, "clipboardWrite": {}},
    "prefersBorder": False,
}
IN_HOUSE = pytest.mark.asyncio(loop_scope="session")


@IN_HOUSE
@cells()
@requirement("apps/tool")
async def test_tool_names_its_page_by_both_keys(client: Client) -> None:
    tool = named(await listed(client, "tools/list", "tools"), "ordered")
    meta = {"ui": {"resourceUri": URI, "visibility": ["model", "app"]}, "ui/resourceUri": URI}
    assert tool.get("_meta") == (meta if client.cell.revision >= "2025-06-18" else None)
    assert (await client.call("ordered", size=1, colour="red")).text == "1 red"


@IN_HOUSE
@cells()
@requirement("apps/page")
async def test_page_metadata_is_in_the_list_and_the_content(client: Client) -> None:
    [page] = [each for each in await listed(client, "resources/list", "resources") if each["uri"] == URI]
    [item] = (await client.ask("resources/read", {"uri": URI})).result["contents"]
    assert page["mimeType"] == item["mimeType"] == TYPE
    assert item["text"].startswith("<!doctype html>")
    meta = {"ui": PAGE} if client.cell.revision >= "2025-06-18" else None
    assert page.get("_meta") == item.get("_meta") == meta


@IN_HOUSE
@cells(since=LATEST)
@requirement("apps/declared")
async def test_extension_is_declared(client: Client) -> None:
    assert "io.modelcontextprotocol/ui" in (await client.ask("server/discover")).result["capabilities"]["extensions"]


async def app(folder: Path, written: str, **tool: str) -> tuple[JsonObject, JsonObject]:
    """Return the `_meta` of a tool with this `app`, and that of its page."""
    keys = "".join(f", {key}: {value}" for key, value in tool.items())
    text = f"tools: {{t: {{description: T., content: x, app: {written}{keys}}}}}"
    async with product(folder, text, {"t.html": "<!doctype html>"}) as client:
        [definition] = (await client.request("tools/list"))["tools"]
        return definition["_meta"], (await client.read("ui://mcp-gateway/t.html"))["_meta"]


@requirement("apps/page")
async def test_omitted_page_settings_are_not_sent(tmp_path: Path) -> None:
    tool, page = await app(tmp_path, "{file: t.html}")
    assert tool["ui"] == {"resourceUri": "ui://mcp-gateway/t.html", "visibility": ["model", "app"]}
    assert page == {"ui": {}}


@requirement("apps/tool")
async def test_tool_only_for_its_page_keeps_its_meta(tmp_path: Path) -> None:
    tool, _ = await app(tmp_path, "{file: t.html, visibility: [app]}", meta="{mine: 1, ui: {resourceUri: other}}")
    assert tool["mine"] == 1
    assert tool["ui"] == {"resourceUri": "ui://mcp-gateway/t.html", "visibility": ["app"]}


@requirement("apps/page")
async def test_page_is_read_live_and_removed_with_its_tool(tmp_path: Path) -> None:
    text = """
        auth: {api_keys: {ops: {secret: correct-horse-battery-staple, scopes: [x]}}}
        tools:
          t: {description: T., content: x, app: {file: t.html}, access: {scopes: [s]}}
          gone: {description: G., content: x, app: {file: t.html}, requires: {env: [NO_SUCH_VARIABLE]}}
    """
    async with product(tmp_path, text, {"t.html": "<p>one</p>"}) as client:
        assert (await client.read("ui://mcp-gateway/t.html"))["text"] == "<p>one</p>"
        (tmp_path / "t.html").write_text("<p>two</p>")
        assert (await client.read("ui://mcp-gateway/t.html"))["text"] == "<p>two</p>"
        assert (await client.error("resources/read", {"uri": "ui://mcp-gateway/gone.html"})).code == -32602


@requirement("apps/tool")
async def test_tool_only_for_its_page_is_not_found_by_search(compiled: Compile) -> None:
    catalog = compiled("""
        views: {v: {search: true}}
        tools:
          show_sales: {description: Sales., content: x, app: {file: t.html}}
          refresh_sales: {description: Sales., content: x, app: {file: t.html, visibility: [app]}}
    """)
    add_search = catalog.views["v"].add_search
    assert add_search is not None
    search = add_search(catalog).tools["search_tools"]
    found = await search.executor.execute(make_invocation({"query": "sales", "limit": 5}))
    assert isinstance(found, Value)
    assert [each["name"] for each in found.value["tools"]] == ["show_sales"]


@requirement("apps/page")
@pytest.mark.parametrize(
    ("server", "uri"),
    [("demo", "ui://demo/t.html"), ("My server", "ui://My%20server/t.html"), ("a/b", "ui://a%2Fb/t.html")],
)
def test_any_server_name_forms_a_uri(server: str, uri: str) -> None:
    assert app_uri("t", server=server) == uri
