"""Values of PostgreSQL's types as JSON, and inputs of each type as values of PostgreSQL's."""

from pathlib import Path
from typing import Any, Final

import pytest

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
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
    "'2026-01-02 03:04:05.5'::timestamp": "2026-01-02T03:04:05.500000",
    "'2026-01-02 03:04:05+02'::timestamptz": "2026-01-02T01:04:05+00:00",
    "'03:04:05'::time": "03:04:05",
    "'1 day 02:03:04'::interval": "P1DT2H3M4S",
    "'8c5c1f5e-2b9f-4f5e-9a55-000000000001'::uuid": "8c5c1f5e-2b9f-4f5e-9a55-000000000001",
    "'{\"a\": [1, null]}'::jsonb": {"a": [1, None]},
    "'[1.5]'::json": [1.5],
    "ARRAY[1, 2]": [1, 2],
    "ARRAY['a', NULL]": ["a", None],
    "ROW(1, 'a')": [1, "a"],
    "'10.0.0.0/8'::inet": "10.0.0.0/8",
    "NULL": None,
}

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
    columns = ", ".join(f"{written} AS c{number}" for number, written in enumerate(VALUES))
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG % (postgresql.url, columns.replace("\\", "\\\\").replace('"', '\\"')))
    async with Gateway(read_settings({"config": config, "log_level": "error"})) as gateway:
        client = gateway.memory_client()

        async def row(tool: str, **arguments: Any) -> dict[str, Any]:
            result = await client.request("tools/call", {"name": tool, "arguments": arguments})
            assert not result.get("isError"), result
            found: dict[str, Any] = result["structuredContent"]
            return found

        assert dict(zip(VALUES, (await row("values")).values(), strict=True)) == VALUES
        # What no double holds stays text: it is neither null nor a failure.
        assert await row("numbers") == {"a": 1.5, "b": 3, "c": f"1{'0' * 309}.5", "d": f"1{'0' * 5000}"}
        assert await row(
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
