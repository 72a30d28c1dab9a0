"""SQL injection on SQLite, PostgreSQL and MariaDB: values are stored and found unchanged, or rejected.

After each attack, a guard row must still exist, and the value is read back.
"""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from tests.mariadb import Mariadb
from tests.postgresql import Postgresql

# fmt: off
_TERMINATORS: Final = (
    "'",
    "''",
    '"',
    "`",
    "\\'",
    "\\",
    "$$",
    "$x$",
    "]",
    ")",
    "'))",
    "'||'",
    "%",
    "_",
    "--",
    "/*",
    "*/",
)
_PAYLOADS: Final = (
    "; DROP TABLE guard",
    "; DELETE FROM guard; --",
    " OR 1=1 --",
    " OR 'a'='a",
    " UNION SELECT name FROM guard --",
)
_WORDS: Final = (
    "",
    " ",
    "NULL",
    "null",
    "guard",
    "DEFAULT",
    ":value",
    ":id",
    "$1",
    "?",
    "%s",
    "%(p1)s",
    "{{ value }}",
    "${env:HOME}",
    "'; COMMIT; DROP TABLE guard; --",
    "'; ROLLBACK; --",
    "'; ATTACH '/tmp/x' AS x; --",
    "'; PRAGMA query_only=0; --",
    "1; SELECT pg_sleep(60)",
    "' || pg_read_file('/etc/passwd') || '",
    "'; COPY guard TO PROGRAM 'id'; --",
    "' || load_extension('x') || '",
    "E'\\047; DROP TABLE guard'",
    "U&'\\0027'",
    "0x27",
    "\u2019 OR 1=1",
    "\uff07 OR 1=1",
    "\u02bc; DROP TABLE guard",
    "\xbf'; DROP TABLE guard --",
    "縗' OR 1=1 --",
    "\x1b[31m",
    "\r\n; DROP TABLE guard",
    "\u202e' OR 1=1",
    "\ufeff'",
    "é'; --",
    "😀'; --",
    "'\u0000",
    "x" * 2**20,
    "'" * 2**20,
    "'; --" * 2**18,
)
# fmt: on
TEXTS: Final = (*_WORDS, *(start + payload for start in _TERMINATORS for payload in _PAYLOADS))

CONFIG: Final = """
databases:
  target: {url: "%s"}
defaults: {output: {max_size: 8MiB, raw: true}}
tools:
  store:
    input: {id: integer, value: string}
    sql:
      database: target
      writes: true
      query: [DELETE FROM attacked, "INSERT INTO attacked (id, value) VALUES (:id, :value)"]
  found:
    input: {value: string}
    sql: {database: target, query: "SELECT id FROM attacked WHERE value = :value"}
  listed:
    input: {values: {type: array, items: {type: string}}}
    sql: {database: target, query: "SELECT id FROM attacked WHERE value IN (:values)"}
  kept:
    input: {value: object}
    sql: {database: target, query: "SELECT %s AS value", single: true}
  numbered:
    input: {id: integer}
    sql: {database: target, query: "SELECT id FROM attacked WHERE id = :id"}
  on_day:
    input: {day: {type: string, format: date}, key: {type: string, format: uuid}, at: {type: string, format: date-time}}
    sql: {database: target, query: "SELECT name FROM guard WHERE :day IS NULL OR :key IS NULL OR :at IS NULL"}
"""


class Target:
    def __init__(self, gateway: Gateway, guard: Any) -> None:
        self.client = gateway.memory_client()
        self.guard = guard

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return await self.client.request("tools/call", {"name": tool, "arguments": arguments})

    async def ids(self, tool: str, **arguments: Any) -> list[int]:
        result = await self.call(tool, **arguments)
        assert not result.get("isError"), result
        return [row["id"] for row in result["structuredContent"]["rows"]]


TABLES: Final = (
    "DROP TABLE IF EXISTS guard",
    "DROP TABLE IF EXISTS attacked",
    "CREATE TABLE guard (name text)",
    "CREATE TABLE attacked (id integer, value %s)",
    "INSERT INTO guard VALUES ('unharmed')",
)


SERVERS: Final = [pytest.param(name, marks=pytest.mark.build) for name in ("postgresql", "mariadb")]
TEXT: Final = {"postgresql": "CAST(:value AS text)", "mariadb": ":value"}


@pytest.fixture(params=["sqlite", *SERVERS])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with AsyncExitStack() as stack:
        if request.param == "sqlite":
            url, echo, path = "sqlite:target.db", ":value", tmp_path / "target.db"

            async def run(*statements: str) -> list[Any]:
                with sqlite3.connect(path) as connection:
                    rows = [connection.execute(statement).fetchall() for statement in statements][-1]
                connection.close()
                return rows
        else:
            server: Postgresql | Mariadb = request.getfixturevalue(request.param)
            url, echo, run = server.url, TEXT[request.param], server.run
        # MariaDB's TEXT ignores case and is limited to 64 KiB.
        kind = "longtext COLLATE utf8mb4_nopad_bin" if request.param == "mariadb" else "text"
        await run(*(statement.replace("%s", kind) for statement in TABLES))
        config = tmp_path / "config.yaml"
        config.write_text(CONFIG % (url, echo))
        gateway = await stack.enter_async_context(Gateway(read_settings({"config": config, "log_level": "error"})))
        yield Target(gateway, run)
        assert [tuple(row) for row in await run("SELECT name FROM guard")] == [("unharmed",)]


async def test_text_that_looks_like_sql_is_stored_unchanged(target: Target) -> None:
    for number, text in enumerate(TEXTS):
        stored = await target.call("store", id=number, value=text)
        if stored.get("isError"):
            assert "\0" in text, (text[:60], stored)  # PostgreSQL does not support NUL in text
            assert "0x00" in stored["content"][0]["text"]
            continue
        assert await target.ids("found", value=text) == [number], text[:60]
        assert await target.ids("found", value=f"{text}x") == [], text[:60]
        assert await target.ids("listed", values=["other", text]) == [number], text[:60]
        assert await target.ids("listed", values=[f"{text}x", f"x{text}"]) == [], text[:60]


async def test_objects_are_bound_as_json(target: Target) -> None:
    for text in (each for each in TEXTS if "\0" not in each and len(each) < 1000):
        value = {text: [text, {"a": text}]}
        result = await target.call("kept", value=value)
        assert json.loads(result["structuredContent"]["value"]) == value


async def test_values_are_validated_against_their_format_before_binding(target: Target) -> None:
    good = {
        "day": "2026-01-02",
        "key": "8c5c1f5e-2b9f-4f5e-9a55-000000000001",
        "at": "2026-01-02t03:04:05.123456+02:00",
    }
    result = await target.call("on_day", **good)
    assert result["structuredContent"]["rows"] == [], result
    for text in (each for each in TEXTS if len(each) < 1000):
        for name in good:
            result = await target.call("on_day", **{**good, name: text})
            assert result["isError"] is True
            assert f"/{name}" in result["content"][0]["text"]


async def test_lone_surrogate_is_rejected(target: Target) -> None:
    result = await target.call("found", value="a\ud800b")
    assert result["isError"] is True
    assert await target.ids("found", value="a") == []


@pytest.mark.parametrize(
    "number", [2**64, -(2**63) - 1, 10**30, 10**400], ids=["64 bits", "-64 bits", "100 bits", "huge"]
)
async def test_integer_out_of_range_is_rejected_and_never_rounded(target: Target, number: int) -> None:
    result = await target.call("numbered", id=number)
    assert result["isError"] is True, result
    assert await target.ids("numbered", id=7) == []
