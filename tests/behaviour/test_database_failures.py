"""Databases that are unavailable, restarted, replaced, slow or too large."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Final

import pytest

from gateway.cli.commands.validate import check, refused_queries
from gateway.config.loader import load
from gateway.config.settings import read_settings
from gateway.errors import ConfigError, Problem
from tests.behaviour.inside import product
from tests.postgresql import Postgresql
from tests.waiting import until

MIB: Final = 2**20


@pytest.mark.build
async def test_unavailable_database_is_named_and_recovers_without_a_restart(
    postgresql: Postgresql, tmp_path: Path
) -> None:
    config = f"""
databases: {{shop: {{url: "{postgresql.url}"}}}}
tools:
  one: {{timeout: 60s, sql: {{database: shop, query: SELECT 1 AS one, single: true}}}}
  soon: {{timeout: 2s, sql: {{database: shop, query: SELECT 1 AS one, single: true}}}}
"""
    async with product(tmp_path, config) as served:
        assert await served.text("one") == "one: 1"
        postgresql.stop()
        try:
            said = await served.text("soon")
            assert "`shop`" in said
            assert "is unavailable" in said
            waiting = asyncio.ensure_future(served.text("one"))
            await until(lambda: served.gateway.status()["databases"]["shop"]["failures"] >= 4)
        finally:
            await asyncio.to_thread(postgresql.start)
        assert await waiting == "one: 1"
        assert await served.text("one") == "one: 1"


@pytest.mark.build
async def test_cancelled_query_is_stopped_on_the_server(postgresql: Postgresql, tmp_path: Path) -> None:
    config = f"""
databases: {{shop: {{url: "{postgresql.url}", pool: 2}}}}
tools:
  wait: {{sql: {{database: shop, query: "SELECT pg_sleep(600) -- canary"}}}}
  change:
    sql:
      database: shop
      writes: true
      query: [CREATE TABLE cancelled (id int), "SELECT pg_sleep(600) -- canary"]
  one: {{sql: {{database: shop, query: SELECT 1 AS one, single: true}}}}
"""
    running = (
        "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%canary' AND pid <> pg_backend_pid()"
    )
    async with product(tmp_path, config) as served:
        for tool in ("wait", "change", "wait"):
            call = asyncio.ensure_future(served.call(tool))
            await postgresql.wait_for(running)
            call.cancel()
            await asyncio.wait({call})
            await postgresql.wait_for(f"SELECT 1 WHERE NOT EXISTS ({running})")
        assert await postgresql.run("SELECT 1 FROM pg_class WHERE relname = 'cancelled'") == []
        assert await served.text("one") == "one: 1"


@pytest.mark.build
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_million_rows_use_bounded_memory(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = "sqlite:many.db" if kind == "sqlite" else request.getfixturevalue("postgresql").url
    sqlite3.connect(tmp_path / "many.db").close()
    (tmp_path / "many.db").touch()
    config = f"""
databases: {{many: {{url: "{url}"}}}}
tools:
  rows:
    sql:
      database: many
      max_rows: 1000000
      query: >
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
        SELECT i, 'a row that is as long as rows often are, number ' || i AS label FROM n
"""
    async with product(tmp_path, config) as served:
        await served.call("rows")  # creates objects that are kept
        tracemalloc.start()
        try:
            result = await served.call("rows")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert result["structuredContent"]["truncated"] is True
    assert len(result["structuredContent"]["rows"]) > 1000
    assert peak < 20 * MIB


async def test_only_a_changed_database_is_reconnected(tmp_path: Path) -> None:
    for name in ("first", "second", "other"):
        with sqlite3.connect(tmp_path / f"{name}.db") as connection:
            connection.executescript(f"CREATE TABLE t (name); INSERT INTO t VALUES ('{name}')")
        connection.close()
    config = """
databases: {main: {url: "sqlite:first.db"}, other: {url: "sqlite:other.db"}}
tools:
  main: {sql: {database: main, query_file: name.sql, single: true}}
  other: {sql: {database: other, query_file: name.sql, single: true}}
  slow:
    sql:
      database: main
      query: WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n
"""
    (tmp_path / "name.sql").write_text("SELECT name FROM t;\n")
    async with product(tmp_path, config) as served:
        assert [await served.text("main"), await served.text("other")] == ["name: first", "name: other"]
        pools = dict(served.gateway.app.core.services.databases._pools)
        slow = asyncio.ensure_future(served.call("slow"))
        await until(lambda: served.gateway.status()["databases"]["main"]["in_use"])
        (tmp_path / "config.yaml").write_text(config.replace("first.db", "second.db"))
        assert (await served.gateway.app.core.reloader.reload()).problems == ()
        assert [await served.text("main"), await served.text("other")] == ["name: second", "name: other"]
        old = {profile.url: pool for (profile, _), pool in pools.items()}
        now = {profile.url: pool for (profile, _), pool in served.gateway.app.core.services.databases._pools.items()}
        assert now[str(tmp_path / "other.db")] is old[str(tmp_path / "other.db")]
        assert old[str(tmp_path / "first.db")].open == 1  # the call that uses it continues
        slow.cancel()
        await asyncio.wait({slow})
        await until(lambda: not old[str(tmp_path / "first.db")].open)
        (tmp_path / "name.sql").write_text("SELECT upper(name) AS name FROM t")
        assert (await served.gateway.app.core.reloader.reload()).problems == ()
        assert await served.text("main") == "name: SECOND"


@pytest.mark.build
async def test_password_is_not_revealed(postgresql: Postgresql, tmp_path: Path) -> None:
    await postgresql.run("DROP TABLE IF EXISTS said", "CREATE TABLE said (name text)")
    url = postgresql.url.replace("tester@", "tester:correct%20horse@")
    config = f"""
databases: {{shop: {{url: "{url}"}}, away: {{url: "postgresql://app@127.0.0.1:9/x", password: battery-staple}}}}
tools:
  said: {{sql: {{database: shop, query: "SELECT 'correct horse battery-staple' AS a", single: true}}}}
  wrong: {{sql: {{database: shop, query: "SELECT CAST('correct horse' AS integer)"}}}}
  away: {{timeout: 300ms, sql: {{database: away, query: SELECT 1}}}}
"""
    async with product(tmp_path, config) as served:
        assert await served.text("said") == "a: *** ***"
        for tool in ("wrong", "away"):
            assert "correct" not in await served.text(tool)
            assert "battery" not in await served.text(tool)
        assert "horse" not in str(served.gateway.status())
        assert "battery" not in str(served.gateway.status())


BROKEN: Final = """
databases:
  shop: {url: "sqlite:shop.db"}
tools:
  a:
    input: {title: string, extra: string}
    sql:
      database: shop
      query: |
        SELECT *
        FROM orders WHERE title = :titel AND x = '{{ title }}'
  b:
    input: {id: integer}
    sql: {database: shp, query: ["/* x */ commit", "SET TRANSACTION READ WRITE", "SELECT $1 + :id", "SELECT 'a"]}
  c:
    input: {id: integer, more: string}
    sql: {database: shop, query: "SELECT :id"}
  d:
    annotations: {read_only: true}
    sql: {database: shop, query: DELETE FROM orders, writes: true}
  e:
    sql: {database: shop, query_file: none.sql}
  f:
    input: {ids: array}
    sql: {database: shop, query: "SELECT 1 WHERE 1 IN :ids"}
"""


def test_unusable_database_is_reported_with_its_position(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(BROKEN)
    (tmp_path / "shop.db").touch()
    with pytest.raises(ConfigError) as raised:
        check(read_settings({"config": tmp_path / "config.yaml"}))
    lines = BROKEN.split("\n")
    said = {
        lines[place.line - 1][place.column - 1 :]: problem.message
        for problem in raised.value.errors
        if (place := problem.location) is not None
    }
    for start, message in {
        ":titel AND": "`:titel` is not an input; did you mean `title`?",
        "{{ title }}": "Write `:title`, without quotes",
        "shp, query": "unknown database `shp`; did you mean `shop`?",
        "commit": "COMMIT is not allowed in a query: the gateway starts and ends the transaction of a query",
        "SET TRANSACTION": "SET is not allowed in a query: the gateway starts and ends the transaction of a query",
        "$1 + :id": "`$1` is a numbered parameter. Bind an input by name: `:name`",
        "'a\"]": "quoted text is not closed with '",
        "string}": "no query uses `more`; bind it as `:more`, or remove it",
        "annotations: {read_only: true}": "has `read_only: true`, but its `sql` has `writes: true`",
        "none.sql": "`none.sql`: no such file",
        ":ids": "a list must be the only item in its brackets: IN (:ids)",
    }.items():
        assert [found for place, found in said.items() if place.startswith(start) and message in found], (start, said)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.build)])
async def test_databases_report_the_position_of_invalid_queries(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = "sqlite:shop.db" if kind == "sqlite" else request.getfixturevalue("postgresql").url
    (tmp_path / "shop.db").touch()
    (tmp_path / "wrong.sql").write_text("-- the first line\nSELECT 1;\nSELECT 2\n  FROM missing\n")
    (tmp_path / "config.yaml").write_text(f"""
databases: {{shop: {{url: "{url}"}}}}
tools:
  a:
    input: {{x: array}}
    sql:
      database: shop
      query: |
        SELECT 1 WHERE 1 IN (:x)
        FORM nothing
  b: {{sql: {{database: shop, query_file: wrong.sql}}}}
  c: {{sql: {{database: shop, writes: true, query: [CREATE TABLE t (id integer), SELECT id FROM t]}}}}
""")
    dry, _ = check(read_settings({"config": tmp_path / "config.yaml"}))
    problems: tuple[Problem, ...] = await refused_queries(load(tmp_path / "config.yaml"), dry.catalog.databases)
    places = [(each.location.file.name, each.location.line, each.location.column) for each in problems if each.location]
    assert places == [("config.yaml", 10, 9), ("wrong.sql", 4, 8)]
    assert "FORM" in problems[0].message


@pytest.mark.parametrize(
    "query",
    [
        "EXPLAIN QUERY PLAN SELECT * FROM t WHERE id = 1",
        "-- a plan\nexplain SELECT id FROM t",
        "WITH n AS (SELECT 1) SELECT * FROM n",
        "VALUES (1), (2)",
        "SELECT name FROM pragma_table_info('t')",
    ],
)
async def test_sqlite_accepts_every_query_that_runs(tmp_path: Path, query: str) -> None:
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    connection.close()
    config = {"databases": {"a": {"url": "sqlite:a.db"}}, "tools": {"q": {"sql": {"database": "a", "query": query}}}}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    dry, _ = check(read_settings({"config": tmp_path / "config.yaml"}))
    assert await refused_queries(load(tmp_path / "config.yaml"), dry.catalog.databases) == ()
    async with product(tmp_path, json.dumps(config)) as served:
        assert not (await served.call("q")).get("isError")


async def test_temporary_table_of_sqlite_ends_with_its_call(tmp_path: Path) -> None:
    config = """
databases: {a: {url: "sqlite:a.db", pool: 1}}
tools:
  leave: {sql: {database: a, writes: true, query: [CREATE TEMP TABLE left_over (x), SELECT * FROM left_over]}}
  find: {sql: {database: a, writes: true, query: SELECT * FROM left_over}}
"""
    async with product(tmp_path, config) as served:
        assert await served.text("leave") == await served.text("leave") == "x\n(0 rows)"
        assert "no such table" in await served.text("find")


NO_THREAD: Final = """
import asyncio, resource, sys
from pathlib import Path
from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings

async def main():
    settings = read_settings({"config": Path(sys.argv[1]), "log_level": "error", "no_watch": True, "state_dir": "none"})
    async with Gateway(settings) as gateway:
        async def text(tool):
            answer = await gateway.memory_client().request("tools/call", {"name": tool, "arguments": {}})
            return answer["content"][0]["text"]

        await text("first")  # imports, and starts, what all calls need
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 4 * 2**20, hard))  # a thread has a stack of 8 MiB
        refused = await text("second")
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        print(refused, await text("second"), sep="\\n")

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_failed_thread_start_is_an_error_and_later_calls_succeed(
    tmp_path: Path,
) -> None:
    for name in ("first", "second"):
        sqlite3.connect(tmp_path / f"{name}.db").close()
    databases = ", ".join(f"{name}: {{url: 'sqlite:///{name}.db'}}" for name in ("first", "second"))
    tools = ", ".join(
        f"{name}: {{sql: {{database: {name}, query: SELECT 1 AS one, single: true}}}}" for name in ("first", "second")
    )
    config = tmp_path / "config.yaml"
    config.write_text(f"databases: {{{databases}}}\ntools: {{{tools}}}\n")
    command = [sys.executable, "-c", NO_THREAD, str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["cannot start a thread: can't start new thread", "one: 1"], done.stderr
