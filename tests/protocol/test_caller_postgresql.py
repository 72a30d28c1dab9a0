"""PostgreSQL row-level security by the caller: two callers, two results of one query, also from the cache."""

import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.postgresql import Postgresql
from tests.protocol.peers import call, serve_folder
from tests.protocol.test_caller import AUTH, person, problems

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server is Debian's")

FILE: Final = """
databases: {{shop: {{url: "{url}"}}}}
tools:
  orders:
    description: Lists the caller's orders.
    {cache}
    sql:
      database: shop
      query: "SET LOCAL ROLE caller_reader; SELECT item FROM caller_orders ORDER BY item"
      settings: {{app.user_id: "{{{{ caller.subject }}}}", app.team: "{{{{ caller.claims.team }}}}"}}
  left_over:
    description: Shows the setting of the connection.
    sql: {{database: shop, query: "SELECT current_setting('app.user_id', true) AS who"}}
  groups:
    description: Compares a list.
    sql:
      database: shop
      query: "SELECT 'red' = ANY(CAST(:groups AS text[])) AS member, :level + 1 AS level"
      bind: {{groups: "{{{{ caller.claims.groups }}}}", level: "{{{{ caller.claims.level }}}}"}}
"""


async def items(peer: Any) -> list[str]:
    result = await call(peer, "orders")
    assert not result.get("isError"), result
    return [row["item"] for row in result["structuredContent"]["rows"]]


@pytest.mark.parametrize("cache", ["", "cache: 1h"], ids=["direct", "cached"])
async def test_row_level_security_separates_callers(tmp_path: Path, postgresql: Postgresql, cache: str) -> None:
    await postgresql.run(
        "DROP TABLE IF EXISTS caller_orders",
        "DROP ROLE IF EXISTS caller_reader",
        "CREATE ROLE caller_reader",
        "CREATE TABLE caller_orders (owner text, team text, item text)",
        "INSERT INTO caller_orders VALUES ('ann', 'red', 'apple'), ('bob', 'red', 'brick'), ('ann', 'blue', 'ant')",
        "GRANT SELECT ON caller_orders TO caller_reader",
        "ALTER TABLE caller_orders ENABLE ROW LEVEL SECURITY",
        """CREATE POLICY own ON caller_orders USING
           (owner = current_setting('app.user_id') AND team = current_setting('app.team'))""",
    )
    (tmp_path / "config.yaml").write_text(AUTH + FILE.format(url=postgresql.url, cache=cache))
    async with serve_folder(tmp_path) as served:
        for _ in range(2):
            assert await items(served.modern(identity=person("ann", team="red"))) == ["apple"]
            assert await items(served.modern(identity=person("bob", team="red"))) == ["brick"]
            assert await items(served.modern(identity=person("ann", team="blue"))) == ["ant"]
        hostile = "'; SET app.user_id = 'ann'; --"
        assert await items(served.modern(identity=person(hostile, team="red"))) == []
        # The setting ends with the transaction of the call.
        left_over = await call(served.modern(identity=person("ann", team="red")), "left_over")
        assert left_over["structuredContent"]["rows"][0]["who"] in {None, ""}


async def test_bound_lists_and_numbers_keep_their_type(tmp_path: Path, postgresql: Postgresql) -> None:
    (tmp_path / "config.yaml").write_text(AUTH + FILE.format(url=postgresql.url, cache=""))
    async with serve_folder(tmp_path) as served:
        result = await call(served.modern(identity=person("ann", groups=["blue", "red"], level=7)), "groups")
    assert result["structuredContent"]["rows"] == [{"member": True, "level": 8}], result


def test_settings_are_accepted_for_postgresql(tmp_path: Path, postgresql: Postgresql) -> None:
    assert problems(tmp_path, FILE.format(url=postgresql.url, cache="")) == []
