"""`mcp-gateway init --from`: what exists already becomes a file that serves as it lies."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

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


def test_a_database_becomes_a_tool_for_each_table(run: Run, database: Path, tmp_path: Path) -> None:
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


def test_the_servers_of_a_client_are_taken_as_they_are(run: Run, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text("tools: {hi: {description: Says hi., content: Hi.}}\n")
    serve = ["serve", str(tmp_path / "small.yaml"), "--stdio", "--no-watch"]
    server = {"command": str(fork_launcher().program), "args": serve}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": server}}))
    assert run("init", "new/config.yaml", "--from", "mcp.json", ".mcp.json").code == 0
    assert run("call", "new/config.yaml", "one_hi").out == "Hi.\n"
    assert run("validate", "--strict", "new/config.yaml").code == 0


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["sqlite", "nothing.db"], "nothing.db: there is no such file"),
        (["sqlite", "config.yaml"], "config.yaml: cannot be read as a database of SQLite"),
        (["sqlite", "empty.db"], "empty.db: has no tables"),
        (["mcp-json", "broken.json"], "broken.json:1:2: JSON syntax: expected a key in double quotes"),
        (["mcp-json", "list.json"], "list.json:1:1: expected a JSON object with `mcpServers` or `servers`"),
        (["openapi", "config.yaml"], "config.yaml: is not OpenAPI. Use OpenAPI 3.x or Swagger 2.0"),
        (["openapi", "ftp://example.com/shop.yaml"], "the scheme ftp: is not supported"),
        (["openapi", "https://[x/shop.yaml"], "https://[x/shop.yaml: is not a URL such as https://"),
        (["word", "config.yaml"], "there is no kind 'word'; expected one of mcp-json, openapi, sqlite"),
    ],
)
def test_what_cannot_be_a_start_is_refused(run: Run, tmp_path: Path, words: list[str], hint: str) -> None:
    (tmp_path / "empty.db").touch()
    (tmp_path / "broken.json").write_text("{1")
    (tmp_path / "list.json").write_text("[]")
    finished = run("init", "new/config.yaml", "--from", *words)
    assert finished.code == 2
    assert hint in finished.hints
    assert not (tmp_path / "new").exists()
