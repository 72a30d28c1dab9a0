"""The `sql` backend on DuckDB, which opens the file read-only for each call."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest

from gateway.cli.commands.validate import check, refused_queries
from gateway.config.loader import load
from gateway.config.settings import read_settings
from gateway.errors import ConfigError
from tests.behaviour.inside import on_database
from tests.waiting import until

URL: Final = "duckdb:shop.duckdb"
TABLE: Final = """
CREATE TABLE t (id INTEGER PRIMARY KEY, name VARCHAR, price DECIMAL(12, 2), day DATE, moment TIMESTAMP,
  stamp TIMESTAMPTZ, doc JSON, data BLOB, key UUID, huge HUGEINT, items INTEGER[],
  part STRUCT(a INTEGER, b VARCHAR), ratio DOUBLE);
INSERT INTO t VALUES (1, 'ada', 19.90, '2026-01-02', '2026-01-02 03:04:05', '2026-01-02 03:04:05+02', '{"a": [1]}',
  '\\x00\\xff'::BLOB, '8c5c1f5e-2b9f-4f5e-9a55-000000000001', 170141183460469231731687303715884105727, [1, 2],
  {'a': 1, 'b': 'x'}, 'nan'), (2, 'bob', 5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
"""
ROW: Final[dict[str, Any]] = {
    "id": 1,
    "name": "ada",
    "price": "19.90",
    "day": "2026-01-02",
    "moment": "2026-01-02T03:04:05",
    "stamp": "2026-01-02T01:04:05Z",
    "doc": {"a": [1]},
    "data": "AP8=",
    "key": "8c5c1f5e-2b9f-4f5e-9a55-000000000001",
    "huge": 170141183460469231731687303715884105727,
    "items": [1, 2],
    "part": {"a": 1, "b": "x"},
    "ratio": "NaN",
}
INPUTS: Final[tuple[tuple[str, Any, Any], ...]] = (
    # A condition for the first row, the schema of its input, and the value sent.
    ("id = :v", "integer", 1),
    ("id = :v", "string", "1"),
    ("name = :v", "string", "ada"),
    ("name || '%' = :v", "string", "ada%"),
    ("price = :v", "number", 19.9),
    ("day = :v", {"type": "string", "format": "date"}, "2026-01-02"),
    ("stamp = :v", {"type": "string", "format": "date-time"}, "2026-01-02T01:04:05Z"),
    ("key = :v", {"type": "string", "format": "uuid"}, "8C5C1F5E-2B9F-4F5E-9A55-000000000001"),
    ("name IN (:v)", {"type": "array", "items": {"type": "string"}}, ["ada", "'; DROP TABLE t --"]),
    ("name NOT IN (:v) AND id = 1", {"type": "array"}, []),
    ("data = :v", {"type": "file"}, "AP8="),
    ("doc ->> 'a' = :v ->> 'a'", "object", {"a": [1]}),
    ("(:v IS NULL OR name = :v) AND id = 1", "string?", None),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute(TABLE)
    return tmp_path


async def test_values_and_inputs_are_preserved(folder: Path) -> None:
    tools: dict[str, Any] = {
        "row": {"sql": {"query": "SELECT * FROM t WHERE id = 1", "single": True}},
        "numbered": {"input": {"v": "integer"}, "sql": {"query": "SELECT id FROM t WHERE id = :v"}},
    }
    for number, (condition, schema, _) in enumerate(INPUTS):
        tools[f"t{number}"] = {"input": {"v": schema}, "sql": {"query": f"SELECT id FROM t WHERE {condition}"}}
    async with on_database(folder, URL, tools) as client:
        assert await client.value("row") == ROW
        for number, (condition, _, value) in enumerate(INPUTS):
            found = await client.value(f"t{number}", **({} if value is None else {"v": value}))
            assert (condition, found["rows"]) == (condition, [{"id": 1}])
        assert "too large" in await client.value("numbered", v=10**400)


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM t",
        "WITH x AS (SELECT 1) INSERT INTO t (id) SELECT 9",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "CREATE TABLE other (x int)",
        "INSTALL httpfs",
        "LOAD httpfs",
        "EXPORT DATABASE 'copy'",
    ],
)
async def test_query_reads_only_the_database(folder: Path, query: str) -> None:
    before = sorted(path.name for path in folder.iterdir())
    async with on_database(folder, URL, {"sneak": {"sql": {"query": query}}}) as client:
        said = await client.value("sneak")
    assert said.startswith("The database `db` rejected the query: "), said
    assert sorted(path.name for path in folder.iterdir() if path.name != "config.yaml") == before


async def test_query_cannot_read_spill_files(folder: Path) -> None:
    spilled = folder / "shop.duckdb.tmp" / "duckdb_temp_storage.tmp"
    spilled.parent.mkdir()
    spilled.write_text("row of another call")
    tools: dict[str, Any] = {"spy": {"sql": {"query": f"SELECT content FROM read_text('{spilled}')"}}}
    async with on_database(folder, URL, tools) as client:
        said = await client.value("spy")
    assert "Permission Error" in said, said


async def test_rows_are_limited_without_reading_all_of_them(folder: Path) -> None:
    query = "SELECT i, 'a row that is as long as rows often are' AS label FROM range(100000000) r(i)"
    tools: dict[str, Any] = {"many": {"sql": {"query": query, "max_rows": 10_000_000}, "output": {"max_size": "8KiB"}}}
    async with on_database(folder, URL, tools) as client:
        found = await client.value("many")
    assert found["truncated"] is True
    assert 50 < len(found["rows"]) < 200


async def test_late_and_cancelled_queries_are_interrupted(folder: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    tools: dict[str, Any] = {
        "late": {"timeout": "500ms", "sql": {"query": endless}},
        "endless": {"sql": {"query": endless}},
        "one": {"sql": {"query": "SELECT 1 AS one", "single": True}},
    }
    async with on_database(folder, URL, tools) as client:
        pools = client.gateway.app.core.services.databases
        assert await client.value("late") == "The database `db` timed out after 0.5 s"
        calls = [asyncio.ensure_future(client.value("endless")) for _ in range(7)]  # two wait for a connection
        await until(lambda: pools.status()["db"]["connections"] >= 5)
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)
        await until(lambda: not pools.status()["db"]["in_use"])
        assert await client.value("one") == {"one": 1}
        assert pools.status()["db"]["connections"] == 0


async def test_query_waits_for_a_writer_and_reads_its_changes(folder: Path) -> None:
    writer = f"""
import duckdb
connection = duckdb.connect({str(folder / "shop.duckdb")!r})
print("open", flush=True)
input()
connection.execute("UPDATE t SET name = 'eve' WHERE id = 1")
connection.close()
"""
    tools: dict[str, Any] = {
        "name": {"timeout": "90s", "sql": {"query": "SELECT name FROM t WHERE id = 1", "single": True}},
        "soon": {"timeout": "300ms", "sql": {"query": "SELECT name FROM t WHERE id = 1", "single": True}},
    }
    async with on_database(folder, URL, tools) as client:
        assert await client.value("name") == {"name": "ada"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", writer, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"open\n"
            # The deadline can pass while the file is opened again.
            assert re.search("is unavailable|timed out", await client.value("soon"))
            waiting = asyncio.ensure_future(client.value("name"))
            await process.communicate(b"\n")
            assert await waiting == {"name": "eve"}
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def errors_of(folder: Path, text: str) -> list[str]:
    (folder / "config.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        check(read_settings({"config": folder / "config.yaml"}))
    return [problem.message for problem in raised.value.errors]


def test_writes_and_other_forms_of_the_url_are_errors(folder: Path) -> None:
    writes = "tools: {w: {sql: {database: db, query: DELETE FROM t, writes: true}}}"
    database = 'databases: {db: {url: "duckdb:shop.duckdb"}}'
    assert errors_of(folder, f"{database}\n{writes}\n") == ["DuckDB databases are opened read-only"]
    [memory] = errors_of(folder, 'databases: {db: {url: "duckdb::memory:"}}\n')
    assert memory.endswith("Use a file: duckdb:notes.duckdb")
    assert errors_of(folder, 'databases: {db: {url: "duckdb:shop.duckdb", password: x}}\n') == [
        "DuckDB databases have no password"
    ]


async def test_connect_reports_the_position_of_an_error(folder: Path) -> None:
    (folder / "config.yaml").write_text(
        """databases: {db: {url: "duckdb:shop.duckdb"}}
tools:
  good: {input: {x: integer}, sql: {database: db, query: "SELECT * FROM t WHERE id = :x LIMIT :x"}}
  table: {sql: {database: db, query: "SELECT * FROM missing"}}
  column: {sql: {database: db, query: "SELECT nope FROM t"}}
"""
    )
    dry, _ = check(read_settings({"config": folder / "config.yaml"}))
    found = await refused_queries(load(folder / "config.yaml"), dry.catalog.databases)
    lines = (folder / "config.yaml").read_text().splitlines()
    places = {
        each.path.split(".")[1]: lines[each.location.line - 1][each.location.column - 1 :]
        for each in found
        if each.location
    }
    assert {name: text.partition('"')[0] for name, text in places.items()} == {
        "table": "missing",
        "column": "nope FROM t",
    }
