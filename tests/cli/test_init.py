"""`mcp-gateway init --from`: the new file is valid and its tools work."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import duckdb
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.cli.typed import Run, started
from tests.fork_launcher import fork_launcher
from tests.mariadb import Mariadb
from tests.postgresql import Postgresql

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


def test_chosen_operations_are_imported_with_a_prefix(run: Run, tmp_path: Path) -> None:
    operation = {"responses": {"200": {"description": "Fine."}}}
    paths = {"/a": {"get": {**operation, "tags": ["read"]}, "post": operation}, "/b": {"get": operation}}
    head = {"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "servers": [{"url": "https://a.example"}]}
    (tmp_path / "shop.json").write_text(json.dumps({**head, "paths": paths}))
    words = ("import", "openapi", "shop.json", "--include", "tag:read", "--include", "POST /a", "--prefix", "my_")
    made = run(*words)
    assert made.code == 0, made.hints
    (tmp_path / "config.yaml").write_text(made.out)
    tools = json.loads(run("list", "tools", "--json").out)["tools"]
    assert [tool["name"] for tool in tools] == ["my_get_a", "my_post_a"]
    (tmp_path / "shop.json").write_text("{}")
    refused = run(*words)
    assert (refused.code, refused.out) == (2, "")
    assert refused.hints.startswith("shop.json: ")


def test_names_in_a_database_are_not_interpolated(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key.txt").write_text("hunter2")
    monkeypatch.setenv("SHOP_KEY", "hunter2")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.executescript("""
            CREATE TABLE "orders ${env:SHOP_KEY}" (id INTEGER PRIMARY KEY, "note ${file:key.txt}" TEXT,
              "total $${env:SHOP_KEY}" INT, "{{ nested }}" TEXT, "{% if x %}" TEXT, "a
b: 1" TEXT, "${" TEXT);
            CREATE TABLE " {{ spaced }}" (id "${env:SHOP_KEY}");
            CREATE TABLE "lines
  ${env:SHOP_KEY}" (id INT);
            INSERT INTO "orders ${env:SHOP_KEY}" VALUES (1, 'x', 5, '', '', '', ''), (2, 'y', 6, '', '', '', '');
        """)
    assert run("init", "new.yaml", "--from", "sqlite", "shop.db").code == 0
    assert run("validate", "--strict", "--connect", "new.yaml").code == 0
    listed = run("list", "new.yaml", "tools", "--json").out
    assert [name in listed for name in ("${env:SHOP_KEY}", "${file:key.txt}", "$${env:SHOP_KEY}")] == [True] * 3
    schema = run("read", "new.yaml", "schema://shop").out
    (tool,) = (tool["name"] for tool in json.loads(listed)["tools"])
    words = ["note_file_key_txt=y", "min_total_env_shop_key=6", "search=y", "--raw"]
    called = run("call", "new.yaml", tool, *words)
    rows = json.loads(called.out)["structuredContent"]["rows"]
    assert [(row["id"], row["note ${file:key.txt}"]) for row in rows] == [(2, "y")]
    assert "hunter2" not in f"{listed}{schema}{called}"


SHOP: Final = (
    "DROP TABLE IF EXISTS orders",
    """CREATE TABLE orders (id INTEGER PRIMARY KEY, customer VARCHAR(99), notes TEXT, total DECIMAL(12, 2),
       created {timestamp}, paid BOOLEAN)""",
    """INSERT INTO orders VALUES (1, 'Ada', '100%', 19.90, '2026-01-02 03:04:05', TRUE),
       (2, 'ada', 'x', 5, '2026-03-01 00:00:00', FALSE), (3, 'Bob', NULL, 7.5, '2026-03-02 00:00:00', NULL)""",
)
CALLS: Final[tuple[tuple[dict[str, Any], list[int]], ...]] = (
    ({}, [1, 2, 3]),
    ({"limit": 2}, [1, 2]),
    ({"limit": 2, "offset": 2}, [3]),
    ({"id": 2}, [2]),
    ({"id": 9}, []),
    ({"min_total": 7.5}, [1, 3]),
    ({"min_total": 5, "max_total": 7.5}, [2, 3]),
    ({"min_created": "2026-03-01 00:00:00"}, [2, 3]),
    ({"min_created": "2026-01-01 00:00:00", "max_created": "2026-02-01 00:00:00"}, [1]),
    ({"search": "ADA"}, [1, 2]),
    ({"search": "0%"}, [1]),
    ({"search": "'; DROP TABLE orders; --"}, []),
    ({"customer": "Bob"}, [3]),
    ({"paid": True}, [1]),
    ({"search": "a", "max_total": 10, "paid": False}, [2]),
)


def found_by_the_tools(run: Run, path: str, calls: Sequence[tuple[dict[str, Any], list[int]]] = CALLS) -> None:
    checked = run("validate", "--strict", "--connect", path)
    assert (checked.code, checked.hints) == (0, f"{path} is valid\n"), checked
    for arguments, ids in calls:
        words = [
            f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in arguments.items()
        ]
        called = run("call", path, "find_orders", *words, "--raw")
        rows = json.loads(called.out)["structuredContent"]["rows"]
        assert (arguments, [row["id"] for row in rows]) == (arguments, ids)


def served_rows(run: Run, folder: Path, path: str) -> list[dict[str, Any]]:
    """Serve the file, and call a tool over HTTP."""
    with started("serve", path, "--http", "127.0.0.1:0", cwd=folder) as server:
        assert server.stderr is not None
        url = next(event["url"] for line in server.stderr if (event := json.loads(line))["event"] == "listening")
        called = run("call", "--url", url, "find_orders", "min_total=5", "limit=1", "offset=1", "--raw")
        server.terminate()
        server.wait(60)
    rows: list[dict[str, Any]] = json.loads(called.out)["structuredContent"]["rows"]
    return rows


def test_tools_of_sqlite_have_pages_ranges_and_search(run: Run, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        for statement in SHOP:
            connection.execute(statement.format(timestamp="TIMESTAMP"))
        connection.commit()
    assert run("init", "new/config.yaml", "--from", "sqlite", "shop.db").code == 0
    found_by_the_tools(run, "new/config.yaml")
    text = (tmp_path / "new/config.yaml").read_text()
    assert "password" not in text
    schema = run("read", "new/config.yaml", "schema://shop")
    assert schema.out.startswith(
        "orders: id INTEGER (primary key), customer VARCHAR(99), notes TEXT, total DECIMAL(12, 2)"
    )
    refused = run("call", "new/config.yaml", "find_orders", "limit=100000")
    assert refused.code == 1


def test_renamed_column_is_an_error(run: Run, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL, notes TEXT)")
        connection.execute("CREATE TABLE lines (number INTEGER PRIMARY KEY, picture BLOB)")
        connection.commit()
        assert run("init", "new.yaml", "--from", "sqlite", "shop.db").code == 0
        assert run("validate", "--connect", "new.yaml").code == 0
        for table, column in (("orders", "total"), ("orders", "notes"), ("lines", "number")):
            connection.execute(f"ALTER TABLE {table} RENAME {column} TO renamed")
            for words in (("validate", "--connect", "new.yaml"), ("call", "new.yaml", f"find_{table}")):
                finished = run(*words)
                assert finished.code != 0, finished
                assert f"no such column: {table}.{column}" in f"{finished.out}{finished.hints}"
            connection.execute(f"ALTER TABLE {table} RENAME renamed TO {column}")


def test_tools_of_duckdb_have_pages_ranges_and_search(run: Run, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        for statement in SHOP:
            connection.execute(statement.format(timestamp="TIMESTAMP"))
        connection.execute("CREATE VIEW recent AS SELECT id, [1] AS items FROM orders")
    assert run("init", "new/config.yaml", "--from", "duckdb", "shop.duckdb").code == 0
    found_by_the_tools(run, "new/config.yaml")
    assert [row["id"] for row in served_rows(run, tmp_path, "new/config.yaml")] == [2]
    assert run("call", "new/config.yaml", "find_recent", "limit=1").code == 0


@pytest.mark.build
async def test_tools_of_postgresql_have_pages_ranges_and_search(
    run: Run, tmp_path: Path, postgresql: Postgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    await postgresql.run(
        "DROP SCHEMA IF EXISTS first_file CASCADE",
        "DROP ROLE IF EXISTS first_reader",
        "CREATE SCHEMA first_file",
        "SET search_path = first_file",
        *(statement.format(timestamp="timestamptz") for statement in SHOP),
        "CREATE TYPE mood AS ENUM ('sad')",
        "CREATE TABLE others (key uuid PRIMARY KEY, m mood, j jsonb, a int[], n numeric, x xml)",
        "INSERT INTO others VALUES ('8c5c1f5e-2b9f-4f5e-9a55-000000000001', 'sad', '{}', '{1}', 1, '<a/>')",
        "CREATE TABLE hidden (id int)",
        "CREATE ROLE first_reader LOGIN PASSWORD 'very:secret/1'",
        "ALTER ROLE first_reader SET search_path = first_file",
        "GRANT USAGE ON SCHEMA first_file TO first_reader",
        "GRANT SELECT ON orders, others TO first_reader",
    )
    url = f"postgresql://first_reader:very%3Asecret%2F1@/postgres?host={postgresql.directory}"
    made = await asyncio.to_thread(run, "init", "new/config.yaml", "--from", "postgres", url)
    assert made.code == 0, made.hints
    text = (tmp_path / "new/config.yaml").read_text()
    assert "secret" not in f"{text}{made.out}{made.hints}"
    assert 'password: "${env:POSTGRES_PASSWORD:-none}"' in text
    monkeypatch.setenv("POSTGRES_PASSWORD", "very:secret/1")
    await asyncio.to_thread(found_by_the_tools, run, "new/config.yaml")
    assert [row["id"] for row in await asyncio.to_thread(served_rows, run, tmp_path, "new/config.yaml")] == [2]
    assert "find_hidden" not in text
    words = ["call", "new/config.yaml", "find_others", "key=8c5c1f5e-2b9f-4f5e-9a55-000000000001", "m=sad", "min_n=1"]
    called = await asyncio.to_thread(run, *words)
    assert "(1 row)" in called.out, called
    # Without a database in the URL, the kind is the name.
    bare = f"{url.replace('/postgres?', '?')}&database=postgres"
    made = await asyncio.to_thread(run, "init", "bare.yaml", "--from", "postgres", bare)
    assert made.code == 0, made.hints
    written = (tmp_path / "bare.yaml").read_text()
    assert "\n  name: postgres\n" in written
    assert "secret" not in f"{written}{made.out}{made.hints}"
    # The password can also be in the environment only.
    url = f"postgresql://first_reader@/postgres?host={postgresql.directory}"
    made = await asyncio.to_thread(run, "init", "other.yaml", "--from", "postgresql", url)
    assert made.code == 0, made.hints
    assert (tmp_path / "other.yaml").read_text() == text


@pytest.mark.build
async def test_tools_of_mariadb_have_pages_ranges_and_search(
    run: Run, tmp_path: Path, mariadb: Mariadb, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mariadb.run(
        "CREATE OR REPLACE DATABASE first_file",
        "USE first_file",
        *(statement.format(timestamp="DATETIME").replace("99)", "99) COLLATE utf8mb4_bin") for statement in SHOP),
        "CREATE TABLE `o``dd \"name` (`key` ENUM('a'), j JSON, b BLOB, t TIME, n FLOAT)",
    )
    url = mariadb.url.replace("/shop", "/first_file")
    made = await asyncio.to_thread(run, "init", "new/config.yaml", "--from", "mariadb", url)
    assert made.code == 0, made.hints
    text = (tmp_path / "new/config.yaml").read_text()
    password = unquote(urlsplit(url).password or "")
    assert password
    assert password not in f"{text}{made.out}{made.hints}"
    monkeypatch.setenv("FIRST_FILE_PASSWORD", password)
    await asyncio.to_thread(found_by_the_tools, run, "new/config.yaml")
    assert [row["id"] for row in await asyncio.to_thread(served_rows, run, tmp_path, "new/config.yaml")] == [2]
    called = await asyncio.to_thread(run, "call", "new/config.yaml", "find_o_dd_name", "max_n=1", "search=x")
    assert called.code == 0, called
    # Without a database in the URL, there are no tables.
    made = await asyncio.to_thread(run, "init", "none.yaml", "--from", "mariadb", mariadb.url.replace("/shop", ""))
    assert (made.code, made.hints) == (2, "mariadb: has no tables\n")


@pytest.mark.build
async def test_server_that_rejects_the_user_is_an_error(run: Run, tmp_path: Path, mariadb: Mariadb) -> None:
    url = mariadb.url.replace("pa%25ss", "correct-horse")
    made = await asyncio.to_thread(run, "init", "new.yaml", "--from", "mysql", url)
    assert made.code == 2
    assert "Access denied" in made.hints
    assert "correct-horse" not in made.hints
    assert not (tmp_path / "new.yaml").exists()


@pytest.mark.parametrize(
    ("kind", "url", "reason"),
    [
        ("postgres", "shop.db", "expected a URL such as postgresql://app@db/shop"),
        ("postgres", "mysql://app@db/shop", "expected a URL such as postgresql://app@db/shop"),
        ("mysql", "postgresql://app:very-secret@db/shop", "expected a URL such as mysql://app@db/shop"),
        ("mysql", "mysql://app@db/shop?password=very-secret", "the query of the URL contains a secret"),
        ("postgres", "postgresql://app:very-secret@127.0.0.1:9/shop", "shop: "),
        ("postgres", "postgresql://app:very-secret@127.0.0.1:9", "postgres: "),
        ("postgres", "postgresql://app:very-secret?x@127.0.0.1:9/shop", "shop: "),
        ("postgres", "postgresql://app:x@very-secret@127.0.0.1:9/shop", "cannot tell the password from the host"),
        ("postgres", "postgresql://a/b:very-secret@127.0.0.1:9/shop", "cannot tell the password from the host"),
        ("postgres", "postgresql://app@127.0.0.1:x/shop", "is not a database URL"),
    ],
)
def test_unusable_url_of_a_database_is_rejected(run: Run, tmp_path: Path, kind: str, url: str, reason: str) -> None:
    made = run("init", "new.yaml", "--from", kind, url)
    assert made.code == 2
    assert reason in made.hints
    assert "very" not in made.hints
    assert not (tmp_path / "new.yaml").exists()


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
    assert made.hints == f"{api}/missing.json: the server returned 404 Not Found\n"
    assert not (tmp_path / "new").exists()


async def test_unfetched_document_is_reported_with_the_reason(run: Run, tmp_path: Path, api: str) -> None:
    (tmp_path / "config.yaml").write_text(f'openapi: {{tides: {{document: "{api}/openapi.json"}}}}\n')
    checked = await asyncio.to_thread(run, "validate")
    assert f"openapi.tides: {api}/openapi.json was not fetched. Use --connect" in checked.hints
    for words in (["list"], ["call", "tides"]):
        finished = await asyncio.to_thread(run, *words)
        assert f"openapi.tides: {api}/openapi.json has not been fetched: `127.0.0.1` has a loopback" in finished.hints


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["sqlite", "nothing.db"], "nothing.db: no such file"),
        (["sqlite", "config.yaml"], "config.yaml: is not a readable SQLite database"),
        (["sqlite", "empty.db"], "empty.db: has no tables"),
        (["mcp-json", "broken.json"], "broken.json:1:2: JSON syntax: unexpected character, expected a string key"),
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


def test_explain_shows_percent_signs_of_mysql_as_they_are_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        """databases: {db: {url: "mysql://app@127.0.0.1:9/shop"}}
tools:
  t: {description: Percent., input: {v: string}, sql: {database: db, query: "SELECT 5 % 3, '%' WHERE x LIKE :v"}}
"""
    )
    explained = run("call", "t", "v=a%", "--explain")
    assert "SELECT 5 % 3, '%' WHERE x LIKE ?" in explained.out
