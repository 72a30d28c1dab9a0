"""A read-only session stays read-only whatever it is sent: what the checks at load refuse, the databases refuse too."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.authoring.validate.command import check
from gateway.config.settings import read_settings
from gateway.errors import ConfigError
from gateway.executors.sql.pools import INSTALL, DatabasePools, DatabaseProfile
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector, RowLimits
from tests.postgresql import Postgresql


async def refused(profile: DatabaseProfile, statements: Sequence[str]) -> str:
    """Run the statements in a read-only session, and return what the database says against the last one."""
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
async def test_a_read_only_session_of_postgresql(postgresql: Postgresql, statements: list[str]) -> None:
    await postgresql.run("CREATE SEQUENCE IF NOT EXISTS sneaking")
    url = postgresql.url.replace("postgresql:", "postgresql+asyncpg:")
    said = await refused(DatabaseProfile(name="t", dialect="postgresql", url=url, size=1), statements)
    assert "read-only" in said or "read-write" in said


def test_a_database_without_the_packages_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)  # what is not installed cannot be imported
    (tmp_path / "config.yaml").write_text('databases:\n  shop: {url: "postgresql://app@db/shop"}\n')
    with pytest.raises(ConfigError) as raised:
        check(read_settings({"config": tmp_path / "config.yaml"}))
    [problem] = raised.value.errors
    assert problem.message == f"needs packages that are not installed: {INSTALL}"
    assert problem.location is not None
    assert problem.location.line == 2
