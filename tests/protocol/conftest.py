"""Gateways in this process, whose tools send input requests or become tasks."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.protocol.peers import LocalGateway, ModernPeer, serve_folder
from tests.protocol.task_requests import WITH_TASKS, serving_tasks

TESTDATA: Final = Path(__file__).parents[1] / "behaviour" / "testdata"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _asking(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalGateway]:
    async with serve_folder(
        shutil.copytree(TESTDATA, tmp_path_factory.mktemp("asking") / "testdata") / "asking"
    ) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def asking(_asking: LocalGateway) -> AsyncIterator[LocalGateway]:
    """A shared gateway for tests that change no files. Each test must leave nothing running."""
    yield _asking
    await _asking.quiet()


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[LocalGateway]:
    """A gateway with a copy of the files, which the test can change."""
    async with serve_folder(shutil.copytree(TESTDATA, tmp_path / "testdata") / "asking") as made:
        yield made
        await made.quiet()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[LocalGateway]:
    """A gateway whose tools become tasks."""
    async with serving_tasks(tmp_path) as made:
        yield made


@pytest.fixture
def peer(served: LocalGateway) -> ModernPeer:
    """A client that has declared the tasks extension."""
    return served.modern(capabilities=WITH_TASKS)
