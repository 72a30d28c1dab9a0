"""A gateway in this process that serves tools which ask."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.protocol.peers import House, ModernPeer, house
from tests.protocol.task_requests import WITH_TASKS, serving_tasks

TESTDATA: Final = Path(__file__).parents[1] / "behaviour" / "testdata"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _asking(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(shutil.copytree(TESTDATA, tmp_path_factory.mktemp("asking") / "testdata") / "asking") as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def asking(_asking: House) -> AsyncIterator[House]:
    """The gateway of all tests that edit nothing; in each nothing may be left running."""
    yield _asking
    await _asking.quiet()


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
