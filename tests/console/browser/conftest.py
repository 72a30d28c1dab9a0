"""A Chromium for all tests of a process, and a daemon for each file of them."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.console.browser.chromium import chromium
from tests.console.browser.served import Served, file_with, served
from tests.console.browser.tab import Tab, tab


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ops(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A daemon that asks nobody for a key, shared by the tests of a file."""
    async with served(tmp_path_factory.mktemp("ops"), file_with()) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def ours(browser: Browser, ops: Served) -> AsyncIterator[Tab]:
    """A tab that is signed in, in which nothing may go wrong."""
    async with tab(browser, ops) as found:
        yield found
        found.check()
