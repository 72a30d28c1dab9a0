"""Server cards, and the catalog that lists them: discovery before a client connects (SEP-2127, a draft)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.errors import ConfigError
from tests.behaviour.test_views import Served, serving
from tests.published_schemas import SERVER_CARD, check

KEY: Final = "hunter2-hunter2-hunter2"
HEAD: Final = "listen: {public_url: https://tools.example.com/ops}\n"
AUTH: Final = f"auth: {{api_keys: {{ci: {{secret: {KEY}}}}}}}\n"
FILE: Final = """
server: {name: ops, version: 1.2.3, description: Looks after machines., website_url: "https://example.com/ops"}
tools: {secret_tool: {description: Says hello., content: Hello.}}
"""
VIEWS: Final = """
views:
  desk: {}
  closed: {access: {scopes: [ops.read]}}
  shown: {access: {scopes: [ops.read], visible: true}}
"""
CARD: Final = "/mcp/server-card"
AI_CATALOG: Final = "/.well-known/ai-catalog.json"
HOST: Final = {"Host": "tools.example.com"}


async def got(served: Served, path: str, **fields: str) -> tuple[int, Mapping[str, str], Any]:
    headers = HOST | {name.replace("_", "-"): value for name, value in fields.items()}
    async with served.client.get(served.url(path), headers=headers) as response:
        is_json = "json" in response.headers.get("Content-Type", "")
        return response.status, response.headers, await response.json(content_type=None) if is_json else None


async def test_card_is_public_and_minimal(tmp_path: Path) -> None:
    async with serving(tmp_path, HEAD + AUTH + FILE) as served:
        status, headers, card = await got(served, CARD, Origin="https://anywhere.example.org")
        assert status == 200
        check(card, SERVER_CARD)
        assert (card["name"], card["version"]) == ("com.example/ops", "1.2.3")
        assert (card["description"], card["websiteUrl"]) == ("Looks after machines.", "https://example.com/ops")
        streamable, sse = card["remotes"]
        assert (streamable["type"], streamable["url"]) == ("streamable-http", "https://tools.example.com/ops/mcp")
        assert {"2024-11-05", "2026-07-28"} <= set(streamable["supportedProtocolVersions"])
        assert (sse["type"], sse["url"]) == ("sse", "https://tools.example.com/ops/sse")
        assert "2026-07-28" not in sse["supportedProtocolVersions"]
        assert streamable["headers"][0]["variables"]["api_key"]["isSecret"] is True
        assert not [word for word in (KEY, "secret_tool", "127.0.0.1") if word in str(card)]
        assert headers["Content-Type"] == "application/mcp-server-card+json"
        assert headers["Access-Control-Allow-Origin"] == "*"
        assert headers["Cache-Control"] == "public, max-age=3600"


async def test_catalog_names_the_card_of_the_server_only(tmp_path: Path) -> None:
    async with serving(tmp_path, HEAD + AUTH + FILE + VIEWS) as served:
        status, headers, catalog = await got(served, AI_CATALOG)
        assert (status, headers["Content-Type"]) == (200, "application/ai-catalog+json")
        assert headers["Access-Control-Allow-Origin"] == "*"
        assert catalog["entries"] == [
            {
                "identifier": "urn:air:example.com:mcp:ops",
                "type": "application/mcp-server-card+json",
                "url": "https://tools.example.com/ops/mcp/server-card",
            }
        ]
        assert (await got(served, "/mcp/desk/server-card"))[0] == 404


@pytest.mark.parametrize("path", [CARD, f"{CARD}/", f"/ops{CARD}", AI_CATALOG, f"/ops{AI_CATALOG}"])
async def test_card_and_catalog_are_served_with_and_without_prefix(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path, HEAD + FILE) as served:
        assert (await got(served, path))[0] == 200


async def test_reload_changes_the_card(tmp_path: Path) -> None:
    async with serving(tmp_path, HEAD + FILE) as served:
        _, _, card = await got(served, CARD)
        assert "headers" not in card["remotes"][0]
        await served.reload(HEAD + FILE.replace("1.2.3", "1.3.0"))
        status, _, card = await got(served, CARD)
        assert (status, card["version"]) == (200, "1.3.0")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (FILE, "the MCP endpoint is"),
        (HEAD.replace("tools.example.com", "10.0.0.7") + FILE.split("website")[0].rstrip(", ") + "}\n", "domain"),
    ],
    ids=["no public_url", "no domain"],
)
async def test_no_card_without_a_public_url(tmp_path: Path, text: str, told: str) -> None:
    async with serving(tmp_path, text) as served:
        for path in (CARD, AI_CATALOG):
            async with served.client.get(served.url(path)) as response:
                assert response.status == 404
                if path == AI_CATALOG:  # without cards, a view can use the path
                    assert told in (await response.json())["error"]


async def test_cards_require_an_own_host_and_get(tmp_path: Path) -> None:
    async with serving(tmp_path, HEAD + FILE) as served:
        for path in (CARD, AI_CATALOG):
            async with served.client.get(served.url(path), headers={"Host": "rebound.example.org"}) as response:
                assert response.status == 421
            async with served.client.post(served.url(path), headers=HOST, json={}) as response:
                assert response.status == 405


async def test_view_cannot_take_the_path_of_the_card(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reserves this path for the server card"):
        async with serving(tmp_path, HEAD + FILE + "views: {server-card: {}}\n"):
            pass
    async with serving(tmp_path, FILE + "views: {server-card: {}}\n") as served:
        assert await served.at(CARD).names("tools") == ["secret_tool"]
