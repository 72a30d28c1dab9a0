"""A gateway in this process that serves tools which ask."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.protocol.peers import House, house

TESTDATA: Final = Path(__file__).parents[1] / "behaviour" / "testdata"


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[House]:
    """A copy of the files, to be edited."""
    async with house(shutil.copytree(TESTDATA, tmp_path / "testdata") / "asking") as made:
        yield made
        await made.quiet()
