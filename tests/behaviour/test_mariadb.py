"""The `sql` backend on MariaDB: values, session state, cancellation, lost connections, and files of the client."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.cli.commands.validate import check, refused_queries
from gateway.config.loader import load
from gateway.config.settings import read_settings
from tests.behaviour.inside import on_database
from tests.mariadb import Mariadb

pytestmark = pytest.mark.build

VALUES: Final[dict[str, Any]] = {
    "TRUE": 1,
    "9223372036854775807": 2**63 - 1,
    "CAST(18446744073709551615 AS UNSIGNED)": 2**64 - 1,
    "1.5e0": 1.5,
    "CAST('12345678901234567890.10' AS DECIMAL(30, 2))": "12345678901234567890.10",
    "'é😀'": "é😀",
    "X'00ff'": "AP8=",
    "DATE '2026-01-02'": "2026-01-02",
    "TIMESTAMP '2026-01-02 03:04:05.5'": "2026-01-02T03:04:05.5",
    "CAST('-120:30:00' AS TIME)": "-120:30:00",
    "'5 % 3'": "5 % 3",
    "5 % 3": 2,
    "'100%s'": "100%s",
    "'%(p1)s'": "%(p1)s",
    '"it\\"s :x"': 'it"s :x',
    "3--2": 5,
    "NULL": None,
}
COLUMNS: Final[dict[str, tuple[str, str, Any]]] = {
    # Type of the column, literal, JSON value.
    "bit": ("BIT(64)", "b'101'", 5),
    "flag": ("BOOLEAN", "TRUE", 1),
    "big": ("BIGINT UNSIGNED", "18446744073709551615", 2**64 - 1),
    "price": ("DECIMAL(12, 2)", "19.90", "19.90"),
    "ratio": ("FLOAT", "1.1", 1.1),
    "day": ("DATE", "'0000-00-00'", "0000-00-00"),
    "at": ("DATETIME(6)", "'2026-01-02 03:04:05.123456'", "2026-01-02T03:04:05.123456"),
    "stamp": ("TIMESTAMP NULL", "'2026-01-02 03:04:05'", "2026-01-02T03:04:05+00:00"),
    "year": ("YEAR", "2026", 2026),
    "kind": ("ENUM('a', 'b')", "'b'", "b"),
    "parts": ("SET('a', 'b')", "'a,b'", "a,b"),
    "data": ("BLOB", "X'00ff'", "AP8="),
    "doc": ("JSON", "'{\"a\": 1}'", '{"a": 1}'),  # text in MariaDB
}
INPUTS: Final[tuple[tuple[str, Any, Any, Any], ...]] = (
    # Expression, schema of its input, sent value, returned value.
    (":v", "string", "it's \"%\" \\ :v \x00", "it's \"%\" \\ :v \x00"),
    ("price = :v", "number", 19.9, 1),
    ("price IN (:v)", {"type": "array", "items": {"type": "number"}}, [19.9, 2], 1),
    ("0.1 + 0.2 = :v", "number", 0.3, 1),
    (":v", "number", 1e300, 1e300),
    ("big = :v", "integer", 2**64 - 1, 1),
    (":v + 1", "integer", 3.0, 4),
    ("NOT :v", "boolean", False, 1),
    (":v", {"type": "string", "format": "date"}, "2026-01-31", "2026-01-31"),
    ("at > :v", {"type": "string", "format": "date-time"}, "2026-01-02T05:04:05+02:00", 1),
    (":v", {"type": "string", "format": "uuid"}, "8C5C1F5E-2b9f-4f5e-9a55-000000000001",
     "8c5c1f5e-2b9f-4f5e-9a55-000000000001"),
    ("JSON_EXTRACT(:v, '$.a')", "object", {"a": "it's"}, '"it\'s"'),
    ("JSON_LENGTH(:v)", "array", [1, 2], 2),
    ("data = :v", {"type": "file"}, "AP8=", 1),
    ("LENGTH(:v)", {"type": "file"}, "iVBORycpOyBEUk9QIP9cAA==", 16),
)  # fmt: skip


async def test_values_and_inputs_are_preserved(mariadb: Mariadb, tmp_path: Path) -> None:
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _, _) in COLUMNS.items())
    written = ", ".join(literal for _, literal, _ in COLUMNS.values())
    await mariadb.run(
        "DROP TABLE IF EXISTS everything",
        f"CREATE TABLE everything ({columns})",
        "SET SESSION sql_mode = ''",
    )
    insert = f"SET STATEMENT sql_mode='', time_zone='+00:00' FOR INSERT INTO everything VALUES ({written})"
    await mariadb.run(insert)
    selected = ", ".join(f"{each} AS c{number}" for number, each in enumerate(VALUES))
    tools: dict[str, Any] = {
        "values": {"sql": {"query": f"SELECT {selected}", "single": True}},
        "columns": {"sql": {"query": "SELECT * FROM everything", "single": True}},
        "huge": {"input": {"v": "integer"}, "sql": {"query": "SELECT :v AS v", "single": True}},
        "unfit": {
            "input": {"v": "integer"},
            "sql": {"query": "INSERT INTO everything (big) VALUES (:v)", "writes": True},
        },
    }
    for number, (expression, schema, *_) in enumerate(INPUTS):
        query = f"SELECT {expression} AS v FROM everything"
        tools[f"t{number}"] = {"input": {"v": schema}, "output": {"raw": True}, "sql": {"query": query, "single": True}}
    async with on_database(tmp_path, mariadb.url, tools) as shop:
        assert dict(zip(VALUES, (await shop.value("values")).values(), strict=True)) == VALUES
        assert await shop.value("columns") == {name: value for name, (_, _, value) in COLUMNS.items()}
        for number, (expression, _, sent, expected) in enumerate(INPUTS):
            assert (expression, await shop.value(f"t{number}", v=sent)) == (expression, {"v": expected})
        assert "exceeds MySQL's 64 bits" in await shop.value("huge", v=2**64)
        assert "Out of range" in await shop.value("unfit", v=-1)


async def test_session_state_ends_with_the_call(mariadb: Mariadb, tmp_path: Path) -> None:
    tools: dict[str, Any] = {
        "variable": {"sql": {"query": "SELECT @left := 7 AS x"}},
        "lock": {"sql": {"query": "SELECT GET_LOCK('left', 60) AS x"}},
        "table": {"sql": {"query": "CREATE TEMPORARY TABLE left_over (x int)", "writes": True}},
        "zone": {"sql": {"query": "CALL other_zone()"}},
        "execute": {"sql": {"query": "EXECUTE IMMEDIATE CONCAT('SET ', CHAR(64), 'left = 7')"}},
        "find": {"sql": {"query": "SELECT @left AS a, IS_USED_LOCK('left') AS b, @@time_zone AS c", "single": True}},
        "find_table": {"sql": {"query": "SELECT * FROM left_over"}},
    }
    await mariadb.run(
        "DROP PROCEDURE IF EXISTS other_zone",
        "CREATE PROCEDURE other_zone() SET SESSION time_zone = '+05:00'",
    )
    async with on_database(tmp_path, mariadb.url, tools, pool=1) as shop:
        for leave in ("variable", "lock", "table", "zone", "execute"):
            await shop.value(leave)
            found = await shop.value("find")
            if found["b"] is not None:  # the server has not noticed yet that the connection is closed
                await mariadb.wait_for("SELECT 1 WHERE IS_USED_LOCK('left') IS NULL")
                found = await shop.value("find")
            assert found == {"a": None, "b": None, "c": "+00:00"}
            assert "left_over" in await shop.value("find_table")


@pytest.mark.parametrize(
    "statement", ["EXECUTE IMMEDIATE 'SET NAMES gbk'", "/*!SET*/ NAMES gbk", "SELECT other_charset() AS x"]
)
async def test_character_set_of_another_call_does_not_change_quoting(
    mariadb: Mariadb, tmp_path: Path, statement: str
) -> None:
    await mariadb.run(
        "DROP FUNCTION IF EXISTS other_charset",
        "CREATE FUNCTION other_charset() RETURNS INT BEGIN SET NAMES gbk; RETURN 1; END",
    )
    tools: dict[str, Any] = {
        "leave": {"sql": {"query": statement}},
        "find": {"input": {"v": "string"}, "sql": {"query": "SELECT :v AS v", "single": True}},
    }
    # In GBK, the last byte of the character and the escaping backslash are one character.
    value = "縗', 7 AS injected -- "
    async with on_database(tmp_path, mariadb.url, tools, pool=1) as shop:
        assert "rejected" not in str(await shop.value("leave"))
        assert await shop.value("find", v=value) == {"v": value}


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE sneaked (x int)", "INSERT INTO guarded VALUES (1)", "CALL sneak()"]
)
async def test_query_without_writes_cannot_change_data(mariadb: Mariadb, tmp_path: Path, statement: str) -> None:
    await mariadb.run(
        "CREATE OR REPLACE TABLE guarded (x int)",
        "DROP PROCEDURE IF EXISTS sneak",
        "CREATE PROCEDURE sneak() BEGIN COMMIT; INSERT INTO guarded VALUES (2); COMMIT; END",
    )
    async with on_database(tmp_path, mariadb.url, {"sneak": {"sql": {"query": statement}}}) as shop:
        said = await shop.value("sneak")
    assert "READ ONLY transaction" in said
    assert await mariadb.run("SELECT * FROM guarded") == []
    assert await mariadb.run("SHOW TABLES LIKE 'sneaked'") == []


async def test_cancelled_and_late_queries_are_stopped_on_the_server(mariadb: Mariadb, tmp_path: Path) -> None:
    tools: dict[str, Any] = {
        "wait": {"sql": {"query": "SELECT SLEEP(600) /* canary */"}},
        "late": {"timeout": "1s", "sql": {"query": "SELECT SLEEP(600) /* canary */"}},
        "change": {
            "sql": {"writes": True, "query": ["INSERT INTO changed VALUES (1)", "SELECT SLEEP(600) /* canary */"]}
        },
        "one": {"sql": {"query": "SELECT 1 AS one", "single": True}},
    }
    running = (
        "SELECT 1 FROM information_schema.processlist WHERE info LIKE '%SLEEP%canary%' AND info NOT LIKE '%schema%'"
    )
    await mariadb.run("CREATE OR REPLACE TABLE changed (x int)")
    async with on_database(tmp_path, mariadb.url, tools, pool=1) as shop:
        for tool in ("wait", "change", "wait"):
            call = asyncio.ensure_future(shop.value(tool))
            await mariadb.wait_for(running)
            call.cancel()
            await asyncio.wait({call})
            await mariadb.wait_for(f"SELECT 1 WHERE NOT EXISTS ({running})")
            assert await shop.value("one") == {"one": 1}
        assert await shop.value("late") == "The database `db` timed out after 1.0 s"
        await mariadb.wait_for(f"SELECT 1 WHERE NOT EXISTS ({running})")
        assert await mariadb.run("SELECT * FROM changed") == []


async def test_truncated_results_and_results_of_procedures(mariadb: Mariadb, tmp_path: Path) -> None:
    await mariadb.run(
        "CREATE OR REPLACE TABLE numbers (x int)",
        "INSERT INTO numbers SELECT seq FROM seq_1_to_100000",
        "DROP PROCEDURE IF EXISTS several",
        "CREATE PROCEDURE several() BEGIN SELECT 1 AS a; SELECT x FROM numbers LIMIT 2; END",
    )
    queries = ["SELECT x FROM numbers ORDER BY x", "SELECT x FROM numbers ORDER BY x DESC"]
    changed = ["UPDATE numbers SET x = 0 WHERE x = 1", *queries]
    tools: dict[str, Any] = {
        "read": {"sql": {"query": queries, "max_rows": 2}},
        "write": {"sql": {"query": changed, "max_rows": 2, "writes": True}},
        "several": {"sql": {"query": "CALL several()"}},
    }
    async with on_database(tmp_path, mariadb.url, tools, pool=1) as shop:
        for tool in ("read", "write", "read"):
            result = await shop.value(tool)
            assert result["rows"] == [{"x": 100_000}, {"x": 99_999}]
            assert result["truncated"] is True
        assert (await shop.value("several"))["rows"] == [{"x": 0}, {"x": 2}]
    assert await mariadb.run("SELECT x FROM numbers WHERE x = 0") == [(0,)]


async def test_server_that_restarts_needs_no_restart_of_the_gateway(mariadb: Mariadb, tmp_path: Path) -> None:
    tools: dict[str, Any] = {
        "one": {"timeout": "90s", "sql": {"query": "SELECT 1 AS one", "single": True}},
        "soon": {"timeout": "500ms", "sql": {"query": "SELECT 1 AS one", "single": True}},
    }
    async with on_database(tmp_path, mariadb.url, tools) as shop:
        assert await shop.value("one") == {"one": 1}
        mariadb.stop()
        try:
            said = await shop.value("soon")
            assert "`db` is unavailable" in said
            waiting = asyncio.ensure_future(shop.value("one"))
        finally:
            await asyncio.to_thread(mariadb.start)
        assert await waiting == {"one": 1}


async def test_error_for_a_wrong_password_does_not_contain_it(mariadb: Mariadb, tmp_path: Path) -> None:
    url = mariadb.url.replace("pa%25ss", "correct-horse")
    tools: dict[str, Any] = {"one": {"sql": {"query": "SELECT 1 AS one"}}}
    async with on_database(tmp_path, url, tools) as shop:
        said = await shop.value("one")
    assert "Access denied for user 'tester'" in said
    assert "correct-horse" not in said


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("ssl_ca={certificate}", ""),
        ("ssl=true&ssl_ca={certificate}", ""),
        ("ssl=true", "certificate verify failed"),
        ("ssl_cert={certificate}&ssl_key={key}", "certificate verify failed"),
        ("ssl_ca={certificate}&ssl_cert={certificate}&ssl_key={key}", ""),
        ("ssl_ca=/nowhere/ca.pem", "No such file"),
    ],
)
async def test_tls_checks_the_certificate(mariadb: Mariadb, tmp_path: Path, option: str, reason: str) -> None:
    tools: dict[str, Any] = {
        "cipher": {"timeout": "60s", "sql": {"query": "SHOW SESSION STATUS LIKE 'Ssl_version'", "single": True}}
    }
    key = mariadb.directory / "key.pem"
    url = f"{mariadb.url}&{option.format(certificate=mariadb.certificate, key=key)}"
    async with on_database(tmp_path, url, tools) as shop:
        said = await shop.value("cipher")
    if reason:  # without retries until the timeout
        assert said.startswith("Cannot connect to the database `db`: ")
        assert reason in said
    else:
        assert said["Value"].startswith("TLSv1")


async def test_connect_reports_the_position_of_an_error(mariadb: Mariadb, tmp_path: Path) -> None:
    await mariadb.run("CREATE OR REPLACE TABLE t (x int, y varchar(9))")
    config = tmp_path / "config.yaml"
    config.write_text(
        f"""databases: {{db: {{url: "{mariadb.url}"}}}}
tools:
  good:
    input: {{x: integer, ys: {{type: array}}}}
    sql: {{database: db, query: "SELECT 5 % 2, '%' FROM t WHERE x = :x AND y IN (:ys) LIMIT :x"}}
  table: {{sql: {{database: db, query: "SELECT * FROM missing"}}}}
  column: {{sql: {{database: db, query: "SELECT nope FROM t"}}}}
  syntax: {{sql: {{database: db, query: "SELECT * FORM t"}}}}
"""
    )
    dry, _ = check(read_settings({"config": config}))
    found = await refused_queries(load(config), dry.catalog.databases)
    places = {each.path.split(".")[1]: (each.location.column if each.location else 0, each.message) for each in found}
    assert set(places) == {"table", "column", "syntax"}
    assert all(message.startswith("the database rejected the statement: ") for _, message in places.values())
    lines = config.read_text().splitlines()
    for name, word in (("table", "missing"), ("column", "nope"), ("syntax", "FORM t")):
        line = next(each for each in lines if each.startswith(f"  {name}:"))
        assert line[places[name][0] - 1 :].startswith(word), (name, places[name])
