"""A new SQL dialect only requires its row in `DIALECTS`, and a module if its driver is special."""

import sqlite3
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gateway.cli.database_file import of_database
from gateway.executors.sql.dialects import DIALECTS, SQLITE
from tests.behaviour.inside import product


async def test_dialect_serves_the_tools_that_init_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(SQLITE, name="other", title="Other", suffix="other", quote="`")
    monkeypatch.setitem(cast("MutableMapping[str, Any]", DIALECTS), "other", other)
    with sqlite3.connect(tmp_path / "shop.other") as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        database.execute("INSERT INTO orders VALUES (1, 'tea'), (2, 'milk')")
    database.close()
    text = await of_database("other", str(tmp_path / "shop.other"), None, "--from")
    assert "SELECT * FROM `orders`" in text
    async with product(tmp_path, text) as client:
        found = (await client.call("find_orders", search="mil"))["structuredContent"]
        assert found["rows"] == [{"id": 2, "item": "milk"}]
