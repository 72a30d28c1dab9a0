"""Questions and notifications for both versions of the official Python client on each transport."""

import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.conftest import CELLS, Cell, talk
from tests.interop.official_clients import PROJECT, OfficialClients

pytestmark = pytest.mark.build

TESTDATA: Final = PROJECT / "tests" / "behaviour" / "testdata"
ASKED: Final = {
    "form": {"text": "John", "number": 1.5, "flag": True, "one": "b", "titled": "a"},
    "sample": "echo Say something",
    "model": "parrot",
    "roots": ["file:///home/ada"],
    "several": ["again", "name", "where"],
    "name": "Ada",
}
OVER_SSE: Final = [
    Cell(line=1, binding="sse", revision="2025-11-25"),
    Cell(line=2, binding="sse", mode="legacy", revision="2025-11-25"),
]


@pytest.mark.parametrize("cell", [*CELLS, *OVER_SSE], ids=str)
async def test_requests_notifications_and_cancellation_work(
    clients: OfficialClients, cell: Cell, tmp_path: Path
) -> None:
    check(await talk(clients, cell, asking(tmp_path), edit=edit_of(tmp_path)))


def asking(folder: Path) -> Path:
    """A file with tools that ask, notify and can be cancelled."""
    return shutil.copytree(TESTDATA, folder / "testdata") / "asking" / "config.yaml"


def edit_of(folder: Path) -> dict[str, str]:
    """Return the steps of the client."""
    return {"path": str(folder / "testdata" / "asking" / "config.yaml"), "old": "  named:", "new": "  renamed:"}


def check(seen: dict[str, Any]) -> None:
    """Check the messages that the client has received."""
    assert seen["asked"] == [[False, ASKED]] * 2
    assert seen["confirmed"] == [False, "deleted yes.txt\n"]
    assert seen["declined"] == [True, "The user declined; nothing was done."]
    assert sorted(seen["questions"]) == sorted(
        ["Delete yes.txt?", "Delete no.txt?", *["Fill in", "Say something", "Who?", "twice"] * 2]
    )
    assert seen["counted"] == [False, "counted"]
    assert seen["progress"] == [[1, 100, "at 1"], [2, 100, "at 2"], [3, 100, "at 3"]]
    assert [level for level, _ in seen["logged"]] == ["warning", "error", "critical", "alert", "emergency"]
    assert seen["cancelled"] == [False, "cancelled"]
    assert "renamed" in seen["tools"]
    assert "named" not in seen["tools"]
