"""`audit-mcp` grades the demo and every starter file with an A."""

import json
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.cli.typed import Run, started
from tests.programs import need_named_by

pytestmark = pytest.mark.build

API: Final = """\
openapi: 3.1.0
info: {title: Shop, version: "1"}
servers: [{url: "https://shop.example"}]
paths:
  /items:
    get:
      operationId: list_items
      summary: List the items of the shop.
      parameters: [{name: q, in: query, description: Words to search for., schema: {type: string}}]
      responses: {"200": {description: ok, content: {application/json: {schema: {type: object}}}}}
"""


@pytest.fixture(scope="module")
def python() -> str:
    """Read before `run` clears the variables of the gateway."""
    return need_named_by("MCP_GATEWAY_TEST_AUDIT", what="a Python with tests/cli/audit.txt installed")


def demo(run: Run, folder: Path) -> Path:
    return Path(__file__).parents[2] / "config" / "demo.yaml"


def first(run: Run, folder: Path) -> Path:
    assert run("init", "first.yaml").code == 0
    return folder / "first.yaml"


def openapi(run: Run, folder: Path) -> Path:
    (folder / "api.yaml").write_text(API)
    assert run("init", "openapi.yaml", "--from", "openapi", "api.yaml").code == 0
    return folder / "openapi.yaml"


def sqlite(run: Run, folder: Path) -> Path:
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.executescript("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price REAL)")
    assert run("init", "sqlite.yaml", "--from", "sqlite", "shop.db").code == 0
    return folder / "sqlite.yaml"


@pytest.mark.parametrize("make", [demo, first, openapi, sqlite], ids=lambda make: make.__name__)
def test_audit_grades_the_file_with_an_a(
    python: str, run: Run, tmp_path: Path, make: Callable[[Run, Path], Path]
) -> None:
    with started("serve", str(make(run, tmp_path)), "--http", "127.0.0.1:0", cwd=tmp_path) as server:
        assert server.stderr is not None
        url = next(event["url"] for line in server.stderr if (event := json.loads(line))["event"] == "listening")
        command = [python, "-m", "checkmcp.cli", url, "--json"]
        audited = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        server.terminate()
        server.wait(60)
    report = json.loads(audited.stdout)
    assert report["grade"] == "A", report["findings"]
