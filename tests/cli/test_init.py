"""`mcp-gateway init --from`: the new file is valid and its tools work."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.cli.typed import Run
from tests.fork_launcher import fork_launcher

SCHEMA = '''
CREATE TABLE "my ""orders""" (id INTEGER PRIMARY KEY, "first name" VARCHAR(9), total DECIMAL, picture BLOB, "a:b" TEXT,
  "First_Name" TEXT);
CREATE VIEW recent AS SELECT id, total FROM "my ""orders""";
CREATE TABLE only_pictures (picture BLOB);
INSERT INTO "my ""orders""" VALUES (1, 'ada', 2.5, x'00', 'x', ''), (2, 'bob', 3, NULL, 'y', '');
'''


@pytest.fixture
def database(run: Run, tmp_path: Path) -> Path:
    del run  # which has moved here
    with closing(sqlite3.connect(tmp_path / "shop 1.db")) as connection:
        connection.executescript(SCHEMA)
    return tmp_path / "shop 1.db"


def test_init_writes_a_tool_per_table(run: Run, database: Path, tmp_path: Path) -> None:
    made = run("init", "new/config.yaml", "--from", "sqlite", str(database))
    assert made.code == 0, made.hints
    assert run("validate", "--strict", "--connect", "new/config.yaml").code == 0
    tools = json.loads(run("list", "new/config.yaml", "tools", "--json").out)
    names = [tool["name"] for tool in (tools["tools"] if isinstance(tools, dict) else tools)]
    assert names == ["find_my_orders", "find_recent"]
    found = json.loads(run("call", "new/config.yaml", "find_my_orders", "id=2", "--raw").out)["structuredContent"]
    assert [row["a:b"] for row in found["rows"]] == ["y"]
    everything = json.loads(run("call", "new/config.yaml", "find_recent", "--raw").out)["structuredContent"]
    assert len(everything["rows"]) == 2
    assert str(tmp_path) not in (tmp_path / "new/config.yaml").read_text()


def test_init_refers_to_the_servers_of_a_client(run: Run, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text("tools: {hi: {description: Says hi., content: Hi.}}\n")
    serve = ["serve", str(tmp_path / "small.yaml"), "--stdio", "--no-watch"]
    server = {"command": str(fork_launcher().program), "args": serve}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": server}}))
    assert run("init", "new/config.yaml", "--from", "mcp.json", ".mcp.json").code == 0
    assert run("call", "new/config.yaml", "one_hi").out == "Hi.\n"
    assert run("validate", "--strict", "new/config.yaml").code == 0


@pytest.fixture
async def api() -> AsyncIterator[str]:
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Tide Tables", "version": "1"},
        "servers": [{"url": "/v1"}],
        "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
        "paths": {"/tides": {"get": {"operationId": "tides", "security": [{"key": []}], "responses": {}}}},
    }

    async def serve_document(_request: web.Request) -> web.Response:
        return web.json_response(document)

    async def serve_tides(request: web.Request) -> web.Response:
        return web.json_response({"key": request.headers["X-Key"]})

    application = web.Application()
    application.router.add_get("/openapi.json", serve_document)
    application.router.add_get("/v1/tides", serve_tides)
    async with TestServer(application, host="127.0.0.1") as server:
        yield str(server.make_url(""))


async def test_document_at_a_private_address_becomes_callable_tools(run: Run, tmp_path: Path, api: str) -> None:
    made = await asyncio.to_thread(run, "init", "new/config.yaml", "--from", "openapi", f"{api}/openapi.json")
    assert made.code == 0, made.hints
    text = (tmp_path / "new/config.yaml").read_text()
    assert f'base_url: "{api}/v1"' in text
    assert 'allow_private: ["127.0.0.1"]' in text
    checked = await asyncio.to_thread(run, "validate", "--strict", "--connect", "new/config.yaml")
    assert (checked.code, checked.out) == (0, "")
    called = await asyncio.to_thread(run, "call", "new/config.yaml", "tide_tables_tides")
    assert json.loads(called.out) == {"key": "none"}


def test_list_counts_omitted_operations_and_names_them_with_v(run: Run, tmp_path: Path) -> None:
    paths: dict[str, Any] = {f"/p{n}": {method: {"responses": {}} for method in ("get", "post")} for n in range(20)}
    document = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths}
    (tmp_path / "api.json").write_text(json.dumps(document))
    connection = "connections: {api: {base_url: 'https://api.example.com'}}\n"
    (tmp_path / "config.yaml").write_text(f"{connection}openapi: {{api: {{document: api.json, connection: api}}}}\n")
    finished = run("list")
    assert len(finished.out.splitlines()) == 21
    assert finished.hints == "openapi.api: 20 operations not available. `-v` lists each with the reason\n"
    assert len(run("list", "-v").hints.splitlines()) == 20
    assert len(run("validate", "--list").hints.splitlines()) == 21


async def test_document_that_cannot_be_fetched_is_an_error(run: Run, tmp_path: Path, api: str) -> None:
    made = await asyncio.to_thread(run, "init", "new/config.yaml", "--from", "openapi", f"{api}/missing.json")
    assert made.code == 2
    assert "404 Not Found" in made.hints
    assert not (tmp_path / "new").exists()


async def test_unfetched_document_is_reported_with_the_reason(run: Run, tmp_path: Path, api: str) -> None:
    (tmp_path / "config.yaml").write_text(f'openapi: {{tides: {{document: "{api}/openapi.json"}}}}\n')
    checked = await asyncio.to_thread(run, "validate")
    assert f"openapi.tides: {api}/openapi.json is not fetched yet, because only --connect" in checked.hints
    for words in (["list"], ["call", "tides"]):
        finished = await asyncio.to_thread(run, *words)
        assert (
            f"openapi.tides: {api}/openapi.json is not fetched yet, because `127.0.0.1` has a loopback"
            in finished.hints
        )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["sqlite", "nothing.db"], "nothing.db: no such file"),
        (["sqlite", "config.yaml"], "config.yaml: is not a readable SQLite database"),
        (["sqlite", "empty.db"], "empty.db: has no tables"),
        (["mcp-json", "broken.json"], "broken.json:1:2: JSON syntax: expected a key in double quotes"),
        (["mcp-json", "list.json"], "list.json:1:1: expected a JSON object with `mcpServers` or `servers`"),
        (["openapi", "config.yaml"], "config.yaml: is not OpenAPI. Use OpenAPI 3.x or Swagger 2.0"),
        (["openapi", "ftp://example.com/shop.yaml"], "the scheme ftp: is not supported"),
        (["openapi", "https://[x/shop.yaml"], "https://[x/shop.yaml: is not a URL such as https://"),
        (["word", "config.yaml"], "unknown kind 'word'; expected one of mcp-json, openapi, sqlite"),
    ],
)
def test_unusable_source_is_rejected(run: Run, tmp_path: Path, words: list[str], hint: str) -> None:
    (tmp_path / "empty.db").touch()
    (tmp_path / "broken.json").write_text("{1")
    (tmp_path / "list.json").write_text("[]")
    finished = run("init", "new/config.yaml", "--from", *words)
    assert finished.code == 2
    assert hint in finished.hints
    assert not (tmp_path / "new").exists()
