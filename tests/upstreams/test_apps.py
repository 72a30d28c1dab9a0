"""Pages of upstreams, which call tools by the names in their HTML."""

import asyncio
from pathlib import Path
from typing import Final

from gateway.json_types import JsonObject
from tests.behaviour.inside import Client, product
from tests.e2e.daemon import TIMEOUT_SECONDS
from tests.upstreams.upstream_servers import over_stdio

SHOP: Final = """
server: {name: shop}
tools:
  sales: {description: Sales., content: "sold", app: {file: sales.html, border: true}}
  refresh: {description: For the page., content: "fresh", app: {file: sales.html, visibility: [app]}}
  secret: {description: For models., content: "secret", app: {file: sales.html, visibility: [model]}}
"""
PLAIN: Final = """
tools:
  plain: {description: Without a page., content: "plain"}
"""
FILES: Final = {
    "shop.yaml": SHOP,
    "plain.yaml": PLAIN,
    "sales.html": "<!doctype html><script>call('sales')</script>",
}


def upstreams(folder: Path, *, more: str = "") -> str:
    entries = {name: over_stdio(folder / f"{file}.yaml") for name, file in (("one", "shop"), ("bare", "plain"))}
    return more + "upstreams:\n" + "".join(f"  {name}:\n    {entry}\n" for name, entry in entries.items())


async def tools_of(client: Client, *names: str) -> dict[str, JsonObject]:
    """Wait until these tools are listed, and return all tools by name."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            tools = {each["name"]: each for each in (await client.request("tools/list"))["tools"]}
            if tools.keys() >= set(names):
                return tools
            await asyncio.sleep(0.05)


async def test_page_calls_tools_by_their_upstream_names(tmp_path: Path) -> None:
    async with product(tmp_path, upstreams(tmp_path), FILES) as client:
        tools = await tools_of(client, "one_sales", "bare_plain")
        assert set(tools) == {"one_sales", "one_refresh", "one_secret", "bare_plain"}
        uri = tools["one_sales"]["_meta"]["ui"]["resourceUri"]
        assert uri == "ui://shop/sales.html"
        page = await client.read(uri)
        assert page["text"] == FILES["sales.html"]
        assert page["_meta"] == {"ui": {"prefersBorder": True}}
        for name in ("sales", "one_sales"):
            assert await client.text(name) == "sold"
        assert await client.text("refresh") == "fresh"
        for name in ("secret", "plain"):  # hidden from pages, and of an upstream without pages
            assert (await client.error("tools/call", {"name": name, "arguments": {}})).code == -32602


async def test_page_name_never_hides_a_tool_of_the_gateway(tmp_path: Path) -> None:
    own = "tools: {sales: {description: Our own., content: ours}}\n"
    async with product(tmp_path, upstreams(tmp_path, more=own), FILES) as client:
        await tools_of(client, "one_sales")
        assert await client.text("sales") == "ours"
        assert await client.text("one_sales") == "sold"


async def test_ambiguous_page_name_is_unknown(tmp_path: Path) -> None:
    text = upstreams(tmp_path) + f"  two:\n    {over_stdio(tmp_path / 'shop.yaml')}\n    uri_prefix: two+\n"
    async with product(tmp_path, text, FILES) as client:
        tools = await tools_of(client, "one_sales", "two_sales")
        assert (await client.error("tools/call", {"name": "sales", "arguments": {}})).code == -32602
        meta = tools["two_sales"]["_meta"]
        assert meta["ui"]["resourceUri"] == meta["ui/resourceUri"] == "two+ui://shop/sales.html"
        assert (await client.read("two+ui://shop/sales.html"))["text"] == FILES["sales.html"]
