"""Values of PostgreSQL types as JSON, and inputs of each type as PostgreSQL values."""

from pathlib import Path
from typing import Any, Final

import pytest

from tests.behaviour.inside import on_database, product
from tests.postgresql import Postgresql

VALUES: Final[dict[str, Any]] = {
    "true": True,
    "9223372036854775807::bigint": 2**63 - 1,
    "1.5::float8": 1.5,
    "'NaN'::float8": "NaN",
    "'-Infinity'::float4": "-Infinity",
    "12345678901234567890.10::numeric": "12345678901234567890.10",
    "'NaN'::numeric": "NaN",
    "'é'::text": "é",
    "'\\x00ff'::bytea": "AP8=",
    "'2026-01-02'::date": "2026-01-02",
    "'2026-01-02 03:04:05.5'::timestamp": "2026-01-02T03:04:05.5",
    "'2026-01-02 03:04:05+02'::timestamptz": "2026-01-02T01:04:05+00:00",
    "'03:04:05'::time": "03:04:05",
    "'1 day 02:03:04'::interval": "P1DT2H3M4S",
    "'8c5c1f5e-2b9f-4f5e-9a55-000000000001'::uuid": "8c5c1f5e-2b9f-4f5e-9a55-000000000001",
    "'{\"a\": [1, null]}'::jsonb": {"a": [1, None]},
    "'[1.5]'::json": [1.5],
    "ARRAY[1, 2]": [1, 2],
    "ARRAY['a', NULL]": ["a", None],
    "'10.0.0.0/8'::inet": "10.0.0.0/8",
    "ARRAY['10.0.0.1'::inet]": ["10.0.0.1"],
    # Values without a form in JSON or Python are PostgreSQL's text.
    "0.1::real": 0.1,
    "'{0.1,NaN}'::real[]": [0.1, "NaN"],
    "'1 year 2 mons 3 days 04:05:06.5'::interval": "P1Y2M3DT4H5M6.5S",
    "ARRAY['-1 mon'::interval]": ["P-1M"],
    "'infinity'::date": "infinity",
    "'infinity'::timestamp": "infinity",
    "'-infinity'::timestamptz": "-infinity",
    "'0044-03-15 BC'::date": "0044-03-15 BC",
    "'0044-03-15 12:00 BC'::timestamp": "0044-03-15T12:00:00 BC",
    "'4713-01-01 BC'::date": "4713-01-01 BC",
    "'0001-01-01'::date": "0001-01-01",
    "'2000-02-29'::date": "2000-02-29",
    "'12345-06-07 01:02:03'::timestamptz": "12345-06-07T01:02:03+00:00",
    "'24:00'::time": "24:00:00",
    "'24:00+02'::timetz": "24:00:00+02",
    "'[1,5)'::int4range": "[1,5)",
    "ARRAY['[2026-01-01,)'::daterange]": ["[2026-01-01,)"],
    "'{[1,3),[5,7)}'::int4multirange": "{[1,3),[5,7)}",
    "'[a,b)'::textrange": "[a,b)",
    "B'1010'": "1010",
    "'101'::varbit": "101",
    "'a'::\"char\"": "a",
    "ROW(1, 'a b', NULL, 0.1::real)": '(1,"a b",,0.1)',
    "(1, 'x')::pair": "(1,x)",
    "ARRAY[(1, 'x')::pair]": ["(1,x)"],
    "(SELECT d FROM documents d)": "(1,'a':1,$2.00)",
    "'sad'::mood": "sad",
    "ARRAY['sad'::mood]": ["sad"],
    "5::positive": 5,
    "'12.50'::money": "$12.50",
    "point(1, 2)": "(1,2)",
    "ARRAY['<(0,0),1>'::circle]": ["<(0,0),1>"],
    "to_tsvector('simple', 'b a')": "'a':2 'b':1",
    "'(0,1)'::tid": "(0,1)",
    "ARRAY[[1, 2], [3, 4]]": [[1, 2], [3, 4]],
    "NULL": None,
}

TYPES: Final = (
    "DROP TYPE IF EXISTS mood, pair, textrange",
    "DROP DOMAIN IF EXISTS positive",
    "DROP TABLE IF EXISTS everything",
    "CREATE TYPE mood AS ENUM ('sad')",
    "DROP TABLE IF EXISTS documents",
    "CREATE TABLE documents (id int, words tsvector, price money)",
    "INSERT INTO documents VALUES (1, to_tsvector('simple', 'a'), 2)",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE TYPE textrange AS RANGE (subtype = text)",
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    "CREATE TABLE everything (id bigint, day date, tags text[], price numeric(10, 2), ratio real, lasts interval)",
    "INSERT INTO everything VALUES (1, '2026-02-03', '{a,b}', 19.99, 0.1, '1 mon')",
)

INPUTS: Final[tuple[tuple[str, Any, Any, Any], ...]] = (
    # Expression of the query, schema of its input, sent value, returned value.
    ("CAST(:v AS date)", "string", "2026-02-03", "2026-02-03"),
    ("CAST(:v AS timestamp)", "string", "2026-01-02 03:04:05", "2026-01-02T03:04:05"),
    ("CAST(:v AS time)", "string", "24:00", "24:00:00"),
    # An input that is used as several types.
    ("(:v = '' OR day >= NULLIF(:v, '')::date)", "string", "2026-02-03", True),
    ("(id = :v OR CAST('1' AS varchar) = :v)", "string", "1", True),
    (":v || (:v + 1)", "integer", 5, "56"),
    ("CAST(:v AS interval)", "string", "2 hours", "PT2H"),
    ("CAST(:v AS boolean)", "string", "yes", True),
    ("CAST(:v AS bytea)", "string", "\\x00ff", "AP8="),
    ("CAST(:v AS int4range)", "string", "[1,5)", "[1,5)"),
    ("CAST(:v AS textrange)", "string", "[a,b)", "[a,b)"),
    ("CAST(:v AS pair)", "string", "(1,a)", "(1,a)"),
    ("CAST(:v AS mood)", "string", "sad", "sad"),
    ("CAST(:v AS inet)", "string", "10.0.0.1", "10.0.0.1"),
    ("CAST(:v AS bit(3))", "string", "101", "101"),
    ("CAST(:v AS point)", "string", "(1,2)", "(1,2)"),
    ("CAST(:v AS jsonb)", "string", '{"a": 1}', {"a": 1}),
    ("CAST(:v AS int[])", "string", "{1,2}", [1, 2]),
    ("CAST(:v AS numeric)", "string", "12345678901234567890.10", "12345678901234567890.10"),
    ("id = :v", "string", "1", True),
    ("id IN (:v)", {"type": "array", "items": {"type": "string"}}, ["1", "2"], True),
    ("day IN (:v)", {"type": "array", "items": {"type": "string"}}, ["2026-02-03"], True),
    ("lasts = :v", "string", "P1M", True),
    (":v || '!'", "integer", 5, "5!"),
    ("NOT :v", "boolean", True, False),
    ("id = :v", {"enum": [1, 2]}, 1, True),
    ("price = :v", "number", 19.99, True),
    ("price IN (:v)", {"type": "array", "items": {"type": "number"}}, [19.99], True),
    ("ratio = :v", "number", 0.1, True),
    ("0.10 + 0.20 = :v", "number", 0.3, True),
    ("2 * :v", "number", 0.5, "1.0"),
    (":v", "number", 1e-7, "0.0000001"),
    ("id = ANY(:v)", {"type": "array", "items": {"type": "integer"}}, [1, 2], True),
    ("tags && :v", {"type": "array", "items": {"type": "string"}}, ["b"], True),
    ("CAST(:v AS text[])", "array", ['a"b', "c\\d", "{,}", None, "NULL", ""], ['a"b', "c\\d", "{,}", None, "NULL", ""]),
    ("CAST(:v AS int[])", "array", [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
    ("CAST(:v AS jsonb[])", "array", [{"a": 1}, "s"], [{"a": 1}, "s"]),
    ("cardinality(:v)", {"type": "array", "items": {"type": "integer"}}, [1, 2], 2),
    ("array_to_string(:v, ',')", {"type": "array", "items": {"type": "string"}}, ["a", "b"], "a,b"),
    (":v ->> 0", {"type": "array", "items": {"type": "string"}}, ["a"], "a"),
    ("jsonb_array_length(:v)", {"type": "array", "items": {"type": "string"}}, ["a"], 1),
    (":v", {"type": "array", "items": {"type": "string"}}, ["a"], ["a"]),
    (":v", "string", "a", "a"),
)

CONFIG: Final = """
databases:
  shop: {url: "%s"}
tools:
  values:
    sql: {database: shop, query: "SELECT %s", single: true}
  numbers:
    sql:
      database: shop
      query: "SELECT 1.5::numeric a, 3::numeric b, 1e309 + 0.5 c, 1e5000 d"
      single: true
      decimals: number
  bound:
    input:
      day: {type: string, format: date}
      at: {type: string, format: date-time}
      key: {type: string, format: uuid}
      price: number
      count: integer
      flag: boolean
      name: string
      data: object
      items: array
      missing: string?
    sql:
      database: shop
      single: true
      query: |
        SELECT :day + 1 AS day, :at AS at, :key AS key, :price AS price, 1 + :count AS count, NOT :flag AS flag,
               :name || '!' AS name, :data ->> 'a' AS data, jsonb_array_length(:items) AS items,
               :missing IS NULL OR relname = :missing AS missing
        FROM pg_class LIMIT 1
"""


@pytest.mark.build
async def test_values_are_json(postgresql: Postgresql, tmp_path: Path) -> None:
    await postgresql.run(*TYPES)
    columns = ", ".join(f"{written} AS c{number}" for number, written in enumerate(VALUES))
    config = CONFIG % (postgresql.url, columns.replace("\\", "\\\\").replace('"', '\\"'))
    async with product(tmp_path, config) as client:
        assert dict(zip(VALUES, (await client.value("values")).values(), strict=True)) == VALUES
        # Numbers that a double cannot represent are text.
        assert await client.value("numbers") == {"a": 1.5, "b": 3, "c": f"1{'0' * 309}.5", "d": f"1{'0' * 5000}"}
        assert await client.value(
            "bound",
            day="2026-01-31",
            at="2026-01-02T03:04:05+01:00",
            key="8C5C1F5E-2b9f-4f5e-9a55-000000000001",
            price=2.5,
            count=3.0,
            flag=False,
            name="ada",
            data={"a": "b"},
            items=[1, 2],
        ) == {
            "day": "2026-02-01",
            "at": "2026-01-02T02:04:05+00:00",
            "key": "8c5c1f5e-2b9f-4f5e-9a55-000000000001",
            "price": "2.5",
            "count": 4,
            "flag": True,
            "name": "ada!",
            "data": "b",
            "items": 2,
            "missing": True,
        }


@pytest.mark.build
async def test_postgresql_reads_the_text_of_inputs(postgresql: Postgresql, tmp_path: Path) -> None:
    await postgresql.run(*TYPES)
    tools: dict[str, Any] = {
        f"t{number}": {
            "input": {"v": schema},
            "sql": {"query": f"SELECT {selected} AS v FROM everything -- as written", "single": True},
        }
        for number, (selected, schema, *_) in enumerate(INPUTS)
    }
    tools["added"] = {
        "input": {"day": "string", "tags": "array", "price": "number"},
        "sql": {
            "writes": True,
            "single": True,
            "query": "WITH new AS (INSERT INTO everything (day, tags, price, lasts) "
            "VALUES (:day, :tags, :price, '1 day') RETURNING *) SELECT day, tags, price, lasts FROM new",
        },
    }
    tools["refused"] = {"input": {"id": "string"}, "sql": {"query": "SELECT 1 WHERE 1 = :id"}}
    async with on_database(tmp_path, postgresql.url, tools) as client:
        for number, (selected, _, sent, expected) in enumerate(INPUTS):
            assert (selected, await client.value(f"t{number}", v=sent)) == (selected, {"v": expected})
        assert await client.value("added", day="infinity", tags=["x y"], price=0.1) == {
            "day": "infinity",
            "tags": ["x y"],
            "price": "0.10",
            "lasts": "P1D",
        }
        assert await client.value("refused", id="one") == (
            'The database `db` rejected the query: invalid input syntax for type integer: "one"'
        )


@pytest.mark.build
async def test_procedure_returns_dates_after_a_query_of_unknown_types(postgresql: Postgresql, tmp_path: Path) -> None:
    await postgresql.run(
        *TYPES,
        "CREATE OR REPLACE PROCEDURE times(OUT day date, OUT at timestamptz, OUT ratio real) LANGUAGE sql"
        " AS $$ SELECT date '2026-01-02', timestamptz '2026-01-02 03:04:05+00', real '0.5' $$",
    )
    tools: dict[str, Any] = {
        "document": {
            "sql": {"writes": True, "query": "SELECT (SELECT d FROM documents d) AS document", "single": True}
        },
        "times": {"sql": {"writes": True, "query": "CALL times(NULL, NULL, NULL)", "single": True}},
    }
    async with on_database(tmp_path, postgresql.url, tools, pool=1) as client:
        assert await client.value("document") == {"document": "(1,'a':1,$2.00)"}
        assert await client.value("times") == {"day": "2026-01-02", "at": "2026-01-02T03:04:05Z", "ratio": 0.5}


SESSION_STATE: Final[dict[str, tuple[str, str]]] = {
    # A statement that changes the state of its session, and a query that returns a row if the state persists.
    "setting": ("SELECT set_config('search_path', 'nowhere', false)", "SELECT 1 WHERE current_schemas(false) = '{}'"),
    "role": ("SELECT set_config('role', 'pg_monitor', false)", "SELECT 1 WHERE current_user = 'pg_monitor'"),
    "lock": ("SELECT pg_advisory_lock(7)", "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"),
    "table": ("CREATE TEMP TABLE left_over (x int)", "SELECT 1 FROM pg_class WHERE relname = 'left_over'"),
    "channel": ("DO 'BEGIN LISTEN left_over; END'", "SELECT 1 FROM pg_listening_channels()"),
    "statement": (
        "DO $$ BEGIN EXECUTE 'PREPARE left_over AS SELECT 1'; END $$",
        "SELECT 1 FROM pg_prepared_statements WHERE name = 'left_over'",
    ),
}


@pytest.mark.build
@pytest.mark.parametrize(("leave", "find"), SESSION_STATE.values(), ids=SESSION_STATE)
async def test_session_state_ends_with_its_call(postgresql: Postgresql, tmp_path: Path, leave: str, find: str) -> None:
    tools: dict[str, Any] = {
        "leave": {"sql": {"writes": True, "query": leave}},
        "lock": {"sql": {"query": "SELECT pg_advisory_lock(8)"}},
        "both": {"sql": {"writes": True, "query": [leave, find]}},
        "fails": {"sql": {"writes": True, "query": [leave, "SELECT 1 / 0"]}},
        "find": {"sql": {"writes": True, "query": find}},
    }
    async with on_database(tmp_path, postgresql.url, tools, pool=1) as client:
        if "LISTEN" not in leave:  # takes effect at the commit
            assert len((await client.value("both"))["rows"]) == 1
        for _ in range(2):  # prepared statements
            await client.value("leave")
            assert (await client.value("find"))["rows"] == []
        assert "division by zero" in await client.value("fails")
        await client.value("lock")
        assert (await client.value("find"))["rows"] == []
