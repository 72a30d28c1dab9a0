"""The page at `/` for browsers."""

from pathlib import Path

import pytest

from tests.console.watching import Watched, watched

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FILE = """\
server: {name: ops, title: "<b>Ops</b>", description: "Tools & more"}
tools:
  disk: {description: "Free <space>.", content: x}
"""
AUTH = "auth: {api_keys: {ci: {secret: hunter2-hunter2-hunter2}}}\n"


async def page(daemon: Watched, path: str = "/") -> str:
    base = (daemon.gateway.url or "").removesuffix("/mcp")
    async with daemon.http.get(base + path, headers=BROWSER) as response:
        assert (response.status, response.content_type) == (200, "text/html")
        assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")
        return await response.text()


async def test_page_shows_the_endpoint_the_tools_and_the_console(tmp_path: Path) -> None:
    async with watched(tmp_path, FILE) as daemon:
        text = await page(daemon)
        assert f"<pre>{daemon.gateway.url}</pre>" in text
        assert "<h1>&lt;b&gt;Ops&lt;/b&gt;</h1>" in text
        assert "<code>disk</code> Free &lt;space&gt;." in text
        assert "/-/console/" in text
        assert f"claude mcp add --transport http ops {daemon.gateway.url}" in text


async def test_page_with_authentication_names_no_tool(tmp_path: Path) -> None:
    async with watched(tmp_path, FILE + AUTH) as daemon:
        text = await page(daemon)
        assert "disk" not in text
        assert "Clients must authenticate" in text


@pytest.mark.parametrize("path", ["/", "/ops/"])
async def test_page_shows_the_public_url(tmp_path: Path, path: str) -> None:
    listen = "listen: {public_url: https://tools.example.com/ops}\n"
    async with watched(tmp_path, listen + FILE) as daemon:
        text = await page(daemon, path)
        assert "<pre>https://tools.example.com/ops/mcp</pre>" in text
        assert "/-/console/" not in text


@pytest.mark.parametrize(
    ("method", "path", "accept"), [("GET", "/", "*/*"), ("GET", "/other", "text/html"), ("POST", "/", "text/html")]
)
async def test_other_requests_get_json(tmp_path: Path, method: str, path: str, accept: str) -> None:
    async with watched(tmp_path, FILE) as daemon:
        base = (daemon.gateway.url or "").removesuffix("/mcp")
        async with daemon.http.request(method, base + path, headers={"Accept": accept}) as response:
            assert response.status == 404
            assert "the MCP endpoint is /mcp" in (await response.json())["error"]


async def test_page_counts_the_tools_beyond_fifty(tmp_path: Path) -> None:
    tools = "".join(f"  tool{number}: {{description: One of many., content: x}}\n" for number in range(52))
    async with watched(tmp_path, f"tools:\n{tools}") as daemon:
        assert "<li>and 2 more" in await page(daemon)
