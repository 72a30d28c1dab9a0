"""Read-only sessions reject all changes, including changes that are also detected at load."""

import asyncio
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

import pytest
from sqlalchemy.dialects import registry

from gateway.app.gateway import Gateway
from gateway.cli.commands.validate import check
from gateway.config.settings import read_settings
from gateway.errors import ConfigError, ExecutionError
from gateway.executors.sql.dialects import SQLITE, bound_value, type_of
from gateway.executors.sql.pools import DatabasePools, DatabaseProfile
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector
from gateway.json_types import Json
from tests.postgresql import Postgresql


@pytest.mark.parametrize(
    ("value", "decimals", "expected"),
    [
        (Decimal("1.50"), "string", "1.50"),
        (Decimal("1.50"), "number", 1.5),
        (Decimal("2.0"), "number", 2),
        (Decimal("1E+400"), "number", f"1{'0' * 400}"),
        (Decimal("-Infinity"), "number", "-Infinity"),
        (float("nan"), "string", "NaN"),
        (PurePosixPath("a"), "string", "a"),
    ],
)
def test_value_of_a_driver_becomes_json(value: Any, decimals: Literal["string", "number"], expected: Json) -> None:
    rows = RowCollector(max_rows=1, max_bytes=1000, decimals=decimals)
    rows.begin(["v"])
    rows.add([[value]])
    assert rows.rows == [{"v": expected}]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "integer"}, 3.0, 3),
        ({"type": ["integer", "string"]}, 3.0, 3.0),
        ({"format": "date"}, "2026-01-02", "2026-01-02"),
        ({"format": "date-time"}, "2026-01-02t03:04:05+01:00", "2026-01-02 02:04:05"),
        ({"type": "array"}, [1, "a"], '[1,"a"]'),
    ],
)
def test_value_of_an_input_is_bound_in_the_format_of_the_driver(schema: Json, value: Json, expected: Json) -> None:
    assert bound_value("v", value, type_of(schema), SQLITE.binding) == expected


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"format": "date"}, "2026-13-01", "`v` cannot be bound: month must be in 1..12"),
        ({}, "\ud800", "`v` is not valid text: it contains a lone surrogate"),
        ({}, {"a": "\ud800"}, "`v` cannot be written as JSON: "),
    ],
)
def test_value_that_cannot_be_bound_is_an_error(schema: Json, value: Json, message: str) -> None:
    with pytest.raises(ExecutionError) as raised:
        bound_value("v", value, type_of(schema), SQLITE.binding)
    assert str(raised.value).startswith(message)


def test_query_without_a_statement_is_a_load_error(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "databases: {shop: {url: 'sqlite:shop.db'}}\ntools: {none: {sql: {database: shop, query: -- nothing}}}\n"
    )
    (tmp_path / "shop.db").touch()
    with pytest.raises(ConfigError) as raised:
        check(read_settings({"config": tmp_path / "config.yaml"}))
    assert [problem.message for problem in raised.value.errors] == ["contains no statement"]


async def refused(profile: DatabaseProfile, statements: Sequence[str]) -> str:
    """Run statements in a read-only session, and return the error of the last one."""
    rows = RowCollector(max_rows=10, max_bytes=10_000)
    async with DatabasePools() as pools, pools.pool(profile, read_only=True).session() as session:
        await session.begin(seconds=30, statements=2)
        try:
            for text in statements[:-1]:
                await session.run(BoundStatement(text=text, values=(), names=()), rows)
            with pytest.raises(Exception) as raised:  # noqa: PT011 - of the driver's
                await session.run(BoundStatement(text=statements[-1], values=(), names=()), rows)
        finally:
            await session.roll_back()
        failure = session.failure_of(raised.value)
    return str(failure)


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["DELETE FROM t"], "readonly"),
        (["PRAGMA query_only = OFF", "DELETE FROM t"], "readonly"),
        (["ATTACH 'other.db' AS other"], "not authorized"),
        (["SELECT load_extension('x')"], "not authorized"),
        (["VACUUM INTO 'copy.db'"], ""),
    ],
)
async def test_sqlite_read_only_session_cannot_write(tmp_path: Path, statements: list[str], said: str) -> None:
    writer = DatabaseProfile(name="t", dialect="sqlite", url=str(tmp_path / "t.db"), size=1)
    rows = RowCollector(max_rows=10, max_bytes=10_000)
    async with DatabasePools() as pools, pools.pool(writer, read_only=False).session() as session:
        await session.run(BoundStatement(text="CREATE TABLE t (x)", values=(), names=()), rows)
        await session.commit()
    assert said in await refused(writer, statements)
    assert {path.name for path in tmp_path.iterdir()} == {"t.db"}


async def test_unreadable_sqlite_row_leaves_no_active_statement(tmp_path: Path) -> None:
    profile = DatabaseProfile(name="t", dialect="sqlite", url=str(tmp_path / "t.db"), size=1)
    rows = RowCollector(max_rows=10, max_bytes=10_000)
    unreadable = BoundStatement(text="VALUES (CAST(x'ff' AS TEXT)), ('read')", values=(), names=())
    async with DatabasePools() as pools, pools.pool(profile, read_only=False).session() as session:
        with pytest.raises(sqlite3.OperationalError, match="UTF-8"):
            await session.run(unreadable, rows)
        await session.stop()
        await session.run(BoundStatement(text="SELECT 'read' AS x", values=(), names=()), rows)
    assert rows.rows == [{"x": "read"}]


async def test_cancelled_sqlite_query_is_interrupted_while_rows_are_fetched(tmp_path: Path) -> None:
    profile = DatabaseProfile(name="t", dialect="sqlite", url=str(tmp_path / "t.db"), size=1)
    # The first row is found at once, and the search for another one never ends.
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 2"
    async with asyncio.timeout(60), DatabasePools() as pools, pools.pool(profile, read_only=False).session() as session:
        rows = RowCollector(max_rows=10, max_bytes=10_000)
        query = asyncio.create_task(session.run(BoundStatement(text=endless, values=(), names=()), rows))
        while not rows.columns:
            await asyncio.sleep(0.01)
        query.cancel()
        await asyncio.wait({query})
        assert query.cancelled()
        await session.stop()


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE sneaked (x int)"],
        ["SET TRANSACTION READ WRITE"],
        ["SET transaction_read_only = off"],
        ["SELECT set_config('transaction_read_only', 'off', true)"],
        ["SELECT nextval('sneaking')"],
        ["WITH gone AS (DELETE FROM pg_description RETURNING 1) SELECT * FROM gone"],
    ],
    ids=lambda statements: statements[-1][:30],
)
@pytest.mark.build
async def test_postgresql_read_only_session_cannot_write(postgresql: Postgresql, statements: list[str]) -> None:
    await postgresql.run("CREATE SEQUENCE IF NOT EXISTS sneaking")
    url = postgresql.url.replace("postgresql:", "postgresql+asyncpg:")
    said = await refused(DatabaseProfile(name="t", dialect="postgresql", url=url, size=1), statements)
    assert "read-only" in said or "read-write" in said


@pytest.mark.parametrize(
    ("url", "package", "install"),
    [
        ("postgresql://app@db/shop", "asyncpg", "'sqlalchemy[asyncio]' asyncpg"),
        ("sqlite:shop.db", "aiosqlite", "'sqlalchemy[asyncio]' aiosqlite"),
        ("mysql://app@db/shop", "asyncmy", "'sqlalchemy[asyncio]' asyncmy"),
        ("mariadb://app@db/shop", "asyncmy", "'sqlalchemy[asyncio]' asyncmy"),
        ("duckdb:shop.duckdb", "duckdb", "duckdb"),
    ],
)
def test_missing_packages_are_named_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, package: str, install: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # not installed
    (tmp_path / "config.yaml").write_text(f'databases:\n  shop: {{url: "{url}"}}\n')
    with pytest.raises(ConfigError) as raised:
        check(read_settings({"config": tmp_path / "config.yaml"}))
    [problem] = raised.value.errors
    assert problem.message == f"needs packages that are not installed: pip install {install}"
    assert problem.location is not None
    assert problem.location.line == 2


@pytest.mark.parametrize("option", ["ssl=required", "ssl=on", "ssl=true&ssl=required", "ssl", "ssl=", "ssl_ca=&pool=1"])
@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
def test_unknown_ssl_value_of_mysql_is_an_error(tmp_path: Path, dialect: str, option: str) -> None:
    (tmp_path / "config.yaml").write_text(f'databases:\n  shop: {{url: "{dialect}://app@db/shop?{option}"}}\n')
    with pytest.raises(ConfigError) as raised:
        check(read_settings({"config": tmp_path / "config.yaml"}))
    [problem] = raised.value.errors
    assert problem.path == "databases.shop.url"
    assert problem.message == "`ssl` must be true or false, and `ssl_…` parameters must not be empty"


OTHER: Final = """
databases: {{shop: {{url: "other+aiosqlite:///{path}"}}}}
tools:
  find:
    input: {{names: array, fixed: string}}
    sql:
      database: shop
      query: "SELECT name, ':name' AS x, '5%' AS y FROM t WHERE name IN (:names) OR name = :fixed"
  outside: {{input: {{names: array}}, sql: {{database: shop, query: "SELECT name FROM t WHERE name NOT IN (:names)"}}}}
  add: {{input: {{name: string}}, sql: {{database: shop, writes: true, query: "INSERT INTO t VALUES (:name)"}}}}
  fail: {{sql: {{database: shop, writes: true, query: [DELETE FROM t, SELECT * FROM missing]}}}}
"""


async def test_other_dialects_use_sqlalchemy_and_user_privileges(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """SQLite, under a name that the gateway does not know."""
    registry.register("other.aiosqlite", "sqlalchemy.dialects.sqlite.aiosqlite", "dialect")
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE t (name text)")
    config = tmp_path / "config.yaml"
    config.write_text(OTHER.format(path=tmp_path / "other.db"))
    settings = read_settings({"config": config, "log_level": "warning", "log_format": "json"})
    [warning] = [each for each in check(settings)[1] if "read-only" in each.message]
    assert warning.message == (
        "the gateway cannot make other transactions read-only, so only the grants of the database user restrict its "
        "queries; use a user with SELECT grants only"
    )
    async with Gateway(settings) as gateway:

        async def rows(tool: str, **arguments: Any) -> Any:
            result = await gateway.memory_client().request("tools/call", {"name": tool, "arguments": arguments})
            return result["structuredContent"]["rows"] if not result.get("isError") else result["content"][0]["text"]

        await rows("add", name="it's :x")
        found = [{"name": "it's :x", "x": ":name", "y": "5%"}]
        assert await rows("find", names=["a", "it's :x"], fixed="") == found
        assert await rows("find", names=[], fixed="it's :x") == found
        assert await rows("outside", names=[]) == [{"name": "it's :x"}]
        assert "no such table" in await rows("fail")
        assert gateway.status()["databases"]["shop"]["read_only_by"] == "grants of the user"
    async with asyncio.timeout(60):
        logged = ""
        while warning.message not in logged:  # written by a thread
            await asyncio.sleep(0.01)
            logged += capfd.readouterr().err


def test_statement_of_other_dialect_that_can_change_data_needs_writes(tmp_path: Path) -> None:
    registry.register("other.aiosqlite", "sqlalchemy.dialects.sqlite.aiosqlite", "dialect")
    (tmp_path / "config.yaml").write_text(
        """databases: {shop: {url: "other+aiosqlite:///other.db"}}
tools: {sneak: {sql: {database: shop, query: DELETE FROM t}}}
"""
    )
    with pytest.raises(ConfigError) as raised:
        check(read_settings({"config": tmp_path / "config.yaml"}))
    [problem] = raised.value.errors
    assert problem.message == ("DELETE is not allowed in a query: it can change data, which requires `writes: true`")
