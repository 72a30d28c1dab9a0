"""A Chromium for all tests of a process, and a daemon for each file of them."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.console.browser.served import Served, file_with, served
from tests.console.browser.tab import Tab, tab
from tests.programs import need

FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking")
"""As root in a container there is no sandbox, and a small /dev/shm."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Debian's Chromium: no browser is downloaded."""
    program = need("chromium")
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield chromium
        await chromium.close()


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
