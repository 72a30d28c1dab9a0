"""The `sql` backend, as clients see it, on SQLite, PostgreSQL and MariaDB."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.app.gateway import Gateway
from tests.behaviour.inside import Client, product
from tests.mariadb import Mariadb
from tests.postgresql import Postgresql
from tests.waiting import until

TABLES: Final = (
    "DROP TABLE IF EXISTS orders",
    """CREATE TABLE orders (id integer PRIMARY KEY, customer varchar(99) NOT NULL, status text, total numeric(12, 2),
       created timestamp NULL, due date)""",
    """INSERT INTO orders VALUES (1, 'ada', 'open', 19.90, '2026-01-02 03:04:05', '2026-02-01'),
       (2, 'ada', 'paid', 5, '2026-03-01 00:00:00', '2026-04-01'),
       (3, 'bob', 'open', 7.5, '2026-03-02 00:00:00', NULL)""",
)

CONFIG: Final = """
databases:
  shop: {url: "%s"}
tools:
  find:
    input:
      customer: string
      statuses: {type: array, items: {enum: [open, paid, sent]}, default: [open]}
      since: {type: string, format: date, default: "1970-01-01"}
    sql:
      database: shop
      query: |
        SELECT id, status, due FROM orders -- of :nobody
        WHERE customer = :customer AND status IN (:statuses) AND created >= :since
          AND 'a:b' <> ':c' ORDER BY id
  outside:
    input: {statuses: {type: array, items: {type: string}}}
    sql: {database: shop, query: "SELECT id FROM orders WHERE status NOT IN (:statuses) ORDER BY id"}
  one:
    input: {id: integer}
    sql: {database: shop, query: "SELECT id, customer FROM orders WHERE id = :id", single: true}
  add:
    input: {id: integer, customer: string, note: string?}
    sql:
      database: shop
      writes: true
      query:
        - INSERT INTO orders (id, customer, status) VALUES (:id, :customer, 'open')
        - UPDATE orders SET status = COALESCE(:note, status) WHERE id = :id
        - INSERT INTO orders (id, customer) VALUES (:id + 1000, NULLIF(:customer, 'nobody'))
        - SELECT customer FROM orders WHERE id = :id
  touch:
    input: {customer: string}
    sql: {database: shop, writes: true, query: "UPDATE orders SET status = status WHERE customer = :customer"}
  sneak:
    sql: {database: shop, query: "DELETE FROM orders"}
  many:
    input: {count: integer}
    sql:
      database: shop
      max_rows: 2000000
      query: |
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
        SELECT i, 'row of a long result' AS label FROM n
    output: {max_size: 8KiB}
  first:
    sql: {database: shop, query: "SELECT id, id FROM orders ORDER BY id", max_rows: 2}
  uneven:
    input: {label: string}
    sql: {database: shop, query: "SELECT 1 AS i, 'a' AS label UNION SELECT 2, :label UNION SELECT 3, 'c' ORDER BY 1"}
    output: {max_size: 1KiB}
  slow:
    timeout: 1s
    sql:
      database: shop
      query: &slow |
        %s /* slow */
  endless:
    sql: {database: shop, query: *slow}
resources:
  order:
    uri: "order://{id}"
    sql: {database: shop, query: "SELECT * FROM orders WHERE CAST(id AS char(9)) = :id"}
    complete:
      id:
        sql:
          database: shop
          query: SELECT id FROM orders WHERE SUBSTR(CAST(id AS char(9)), 1, LENGTH(:value)) = :value
"""

SLOW: Final = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


class DatabaseClient(Client):
    """A client of a gateway in front of one database."""

    def __init__(self, gateway: Gateway, run: Callable[[str], Awaitable[list[Any]]]) -> None:
        super().__init__(gateway)
        self.run = run

    async def rows(self, tool: str, **arguments: Any) -> list[Any]:
        result = await self.call(tool, **arguments)
        assert not result.get("isError"), result
        rows: list[Any] = result["structuredContent"]["rows"]
        return rows

    async def refusal(self, tool: str, **arguments: Any) -> str:
        result = await self.call(tool, **arguments)
        assert result["isError"] is True, result
        text: str = result["content"][0]["text"]
        return text


def in_sqlite(path: Path) -> Callable[[str], Awaitable[list[Any]]]:
    async def run(statement: str) -> list[Any]:
        with sqlite3.connect(path) as connection:
            found = connection.execute(statement).fetchall()
        connection.close()
        return found

    return run


SERVERS: Final = [pytest.param(name, marks=pytest.mark.build) for name in ("postgresql", "mariadb")]


@pytest.fixture(params=["sqlite", *SERVERS])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DatabaseClient]:
    if request.param == "sqlite":
        url, run = "sqlite:shop.db", in_sqlite(tmp_path / "shop.db")
    else:
        server: Postgresql | Mariadb = request.getfixturevalue(request.param)
        url, run = server.url, server.run
    for statement in TABLES:
        await run(statement)
    slow = "SELECT SLEEP(600)" if request.param == "mariadb" else SLOW
    async with product(tmp_path, CONFIG % (url, slow)) as client:
        yield DatabaseClient(client.gateway, run)


async def test_rows_are_a_table_and_structured_content(shop: DatabaseClient) -> None:
    result = await shop.call("find", customer="ada", statuses=["open", "paid"], since="2026-01-01")
    assert result["structuredContent"] == {
        "columns": ["id", "status", "due"],
        "rows": [
            {"id": 1, "status": "open", "due": "2026-02-01"},
            {"id": 2, "status": "paid", "due": "2026-04-01"},
        ],
        "truncated": False,
    }
    assert result["content"][0]["text"] == "id | status | due\n1 | open | 2026-02-01\n2 | paid | 2026-04-01\n(2 rows)"
    assert await shop.rows("find", customer="ada") == [{"id": 1, "status": "open", "due": "2026-02-01"}]
    assert await shop.rows("find", customer="ada", since="2026-02-01") == []


async def test_empty_list_matches_nothing_and_its_negation_everything(shop: DatabaseClient) -> None:
    assert await shop.rows("find", customer="ada", statuses=[]) == []
    assert [row["id"] for row in await shop.rows("outside", statuses=[])] == [1, 2, 3]
    assert [row["id"] for row in await shop.rows("outside", statuses=["open"])] == [2]


async def test_single_returns_one_row_and_fails_without_rows(shop: DatabaseClient) -> None:
    result = await shop.call("one", id=3)
    assert result["structuredContent"] == {"id": 3, "customer": "bob"}
    assert result["content"][0]["text"] == "id: 3\ncustomer: bob"
    assert await shop.refusal("one", id=99) == "The query must return exactly one row, but it returned no row"


async def test_several_statements_are_one_transaction(shop: DatabaseClient) -> None:
    assert await shop.rows("add", id=10, customer="eve", note="sent") == [{"customer": "eve"}]
    assert len(await shop.run("SELECT 1 FROM orders WHERE customer = 'eve'")) == 2
    said = await shop.refusal("add", id=11, customer="nobody")
    assert said.startswith("The database `shop` rejected the query: ")
    assert "customer" in said
    assert await shop.run("SELECT 1 FROM orders WHERE id IN (11, 1011)") == []


async def test_change_returns_the_number_of_affected_rows(shop: DatabaseClient) -> None:
    result = await shop.call("touch", customer="ada")
    assert result["structuredContent"] == {"columns": [], "rows": [], "truncated": False, "affected": 2}
    assert result["content"][0]["text"] == "2 rows affected"


async def test_query_without_writes_cannot_write(shop: DatabaseClient) -> None:
    said = await shop.refusal("sneak")
    assert "read" in said.lower()
    assert len(await shop.run("SELECT 1 FROM orders")) == 3
    tools = {tool["name"]: tool for tool in (await shop.request("tools/list"))["tools"]}
    assert tools["find"]["annotations"] == {"readOnlyHint": True}
    assert tools["add"]["annotations"] == {"readOnlyHint": False}


async def test_rows_are_cut_by_max_rows_and_by_the_size_of_the_output(shop: DatabaseClient) -> None:
    first = (await shop.call("first"))["structuredContent"]
    assert first == {"columns": ["id", "id_2"], "rows": [{"id": 1, "id_2": 1}, {"id": 2, "id_2": 2}], "truncated": True}
    result = await shop.call("many", count=1_000_000)
    assert result["structuredContent"]["truncated"] is True
    assert result["content"][0]["text"].endswith("rows, and there are more)")
    assert 100 < len(result["structuredContent"]["rows"]) < 300
    assert (await shop.call("many", count=20))["structuredContent"]["truncated"] is False


async def test_too_large_row_does_not_hide_others(shop: DatabaseClient) -> None:
    result = await shop.call("uneven", label="x" * 2000)
    assert result["structuredContent"] == {
        "columns": ["i", "label"],
        "rows": [{"i": 1, "label": "a"}, {"i": 3, "label": "c"}],
        "truncated": True,
        "omitted": 1,
    }
    assert result["content"][0]["text"].endswith("(2 rows, 1 omitted because they exceed the output's max_size)")


async def test_sql_resource_is_json_with_completion(shop: DatabaseClient) -> None:
    [contents] = (await shop.request("resources/read", {"uri": "order://2"}))["contents"]
    assert contents["mimeType"] == "application/json"
    assert '"customer":"ada"' in contents["text"]
    completed = await shop.request(
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "order://{id}"}, "argument": {"name": "id", "value": "2"}},
    )
    assert completed["completion"]["values"] == ["2"]


async def test_timed_out_call_is_stopped_in_the_database(shop: DatabaseClient) -> None:
    assert await shop.refusal("slow") == "The database `shop` timed out after 1.0 s"
    await gone(shop)


async def test_cancelled_call_is_stopped_in_the_database(shop: DatabaseClient) -> None:
    call = asyncio.ensure_future(shop.call("endless"))
    await until(lambda: connections(shop, "in_use"))
    call.cancel()
    await asyncio.wait({call})
    await gone(shop)
    assert await shop.rows("find", customer="ada") != []


@pytest.mark.parametrize("shop", SERVERS, indirect=True)
async def test_call_cancelled_while_connecting_is_stopped_in_the_database(shop: DatabaseClient) -> None:
    """A driver can lose a cancellation that arrives at the moment when its connection is open."""
    for turns in range(40):
        call = asyncio.ensure_future(shop.call("endless"))
        await until(lambda: connections(shop, "in_use"))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call})
        await gone(shop)


async def gone(shop: DatabaseClient) -> None:
    """Wait until no call uses a connection and the database runs no query of the gateway."""
    await until(lambda: not connections(shop, "in_use"))


def connections(shop: DatabaseClient, which: str) -> int:
    return sum(entry[which] for entry in shop.gateway.app.core.services.databases.status().values())
