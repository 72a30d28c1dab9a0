"""Read-only sessions refuse changes, even those that checks at load would find."""

import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.cli.commands.validate import check
from gateway.config.settings import read_settings
from gateway.distribution import install_command
from gateway.errors import ConfigError, ExecutionError
from gateway.executors.sql.dialects import dialect_of, tokens_of
from gateway.executors.sql.pools import DatabasePools
from gateway.executors.sql.query import BoundStatement, Statement, pieces_of, statements_of
from gateway.executors.sql.rows import RowCollector, RowLimits
from gateway.executors.sql.sessions import DatabaseProfile
from tests.postgresql import Postgresql


async def refused(profile: DatabaseProfile, statements: Sequence[str]) -> str:
    """Run statements in a read-only session, and return the error of the last one."""
    rows = RowCollector(RowLimits(max_rows=10, max_bytes=10_000), decimals="string")
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
async def test_a_read_only_session_of_sqlite(tmp_path: Path, statements: list[str], said: str) -> None:
    writer = DatabaseProfile(name="t", dialect="sqlite", url=str(tmp_path / "t.db"), size=1)
    rows = RowCollector(RowLimits(max_rows=10, max_bytes=10_000), decimals="string")
    async with DatabasePools() as pools, pools.pool(writer, read_only=False).session() as session:
        await session.run(BoundStatement(text="CREATE TABLE t (x)", values=(), names=()), rows)
        await session.commit()
    assert said in await refused(writer, statements)
    assert {path.name for path in tmp_path.iterdir()} == {"t.db"}


async def test_a_row_that_sqlite_cannot_read_leaves_no_statement_that_later_interrupts_hold_for(tmp_path: Path) -> None:
    profile = DatabaseProfile(name="t", dialect="sqlite", url=str(tmp_path / "t.db"), size=1)
    rows = RowCollector(RowLimits(max_rows=10, max_bytes=10_000), decimals="string")
    unreadable = BoundStatement(text="VALUES (CAST(x'ff' AS TEXT)), ('read')", values=(), names=())
    async with DatabasePools() as pools, pools.pool(profile, read_only=False).session() as session:
        with pytest.raises(sqlite3.OperationalError, match="UTF-8"):
            await session.run(unreadable, rows)
        await session.stop()
        await session.run(BoundStatement(text="SELECT 'read' AS x", values=(), names=()), rows)
    assert rows.rows == [{"x": "read"}]


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
async def test_a_read_only_session_of_postgresql(postgresql: Postgresql, statements: list[str]) -> None:
    await postgresql.run("CREATE SEQUENCE IF NOT EXISTS sneaking")
    url = postgresql.url.replace("postgresql:", "postgresql+asyncpg:")
    said = await refused(DatabaseProfile(name="t", dialect="postgresql", url=url, size=1), statements)
    assert "read-only" in said or "read-write" in said


def test_a_database_without_the_packages_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)  # not installed
    (tmp_path / "config.yaml").write_text('databases:\n  shop: {url: "postgresql://app@db/shop"}\n')
    with pytest.raises(ConfigError) as raised:
        check(read_settings({"config": tmp_path / "config.yaml"}))
    [problem] = raised.value.errors
    assert problem.message == f"needs packages that are not installed: {install_command('sql')}"
    assert problem.location is not None
    assert problem.location.line == 2


async def test_other_databases_use_sqlalchemy(tmp_path: Path) -> None:
    """SQLite, used as a database that only SQLAlchemy knows."""
    url = f"sqlite+aiosqlite:///{tmp_path}/other.db"
    profile, dialect = DatabaseProfile(name="t", dialect="other", url=url, size=1), dialect_of("other")
    schemas = {"name": {"type": "string"}, "names": {"type": "array"}}

    def bound(text: str, **arguments: object) -> BoundStatement:
        [tokens] = statements_of(tokens_of(text, dialect_of("other")))
        return Statement(pieces=pieces_of(tokens), dialect=dialect, schemas=schemas).bind(arguments)

    async def run(*statements: BoundStatement) -> list[dict[str, object]]:
        rows = RowCollector(RowLimits(max_rows=10, max_bytes=10_000), decimals="string")
        async with DatabasePools() as pools, pools.pool(profile, read_only=False).session() as session:
            await session.begin(seconds=30, statements=len(statements))
            try:
                for statement in statements:
                    await session.run(statement, rows)
            except Exception as error:
                await session.roll_back()
                raise session.failure_of(error) or error from error
            await session.commit()
        return rows.rows

    insert = bound("INSERT INTO t VALUES (:name, ':name')", name="it's :x")
    assert await run(bound("CREATE TABLE t (name text, fixed text)"), insert) == []
    found = [{"name": "it's :x", "fixed": ":name"}]
    assert await run(bound("SELECT * FROM t WHERE name IN (:names)", names=["a", "it's :x"])) == found
    assert await run(bound("SELECT * FROM t WHERE name IN (:names)", names=[])) == []
    assert await run(bound("SELECT * FROM t WHERE name NOT IN (:names)", names=[])) == found
    with pytest.raises(ExecutionError, match="no such table"):
        await run(bound("DELETE FROM t"), bound("SELECT * FROM missing"))
    assert await run(bound("SELECT * FROM t")) == found
