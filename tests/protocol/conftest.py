"""A gateway in this process that serves tools which ask."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.protocol.peers import House, ModernPeer, house
from tests.protocol.task_requests import WITH_TASKS, serving_tasks

TESTDATA: Final = Path(__file__).parents[1] / "behaviour" / "testdata"


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[House]:
    """A copy of the files, to be edited."""
    async with house(shutil.copytree(TESTDATA, tmp_path / "testdata") / "asking") as made:
        yield made
        await made.quiet()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[House]:
    """A gateway whose tools make tasks."""
    async with serving_tasks(tmp_path) as made:
        yield made


@pytest.fixture
def peer(served: House) -> ModernPeer:
    """A client of it that has declared the extension."""
    return served.modern(capabilities=WITH_TASKS)
