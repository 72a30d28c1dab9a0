"""One browser per process, and one daemon and tab per test file."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.console.browser.chromium import chromium
from tests.console.browser.served import Served, file_with, served
from tests.console.browser.tab import Tab, tab


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    # All pages belong to one site, so site isolation would only use more CPU time.
    async with chromium("--disable-site-isolation-trials") as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ops(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A daemon without `auth`, shared by the tests of a file."""
    async with served(tmp_path_factory.mktemp("ops"), file_with()) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def signed_in(browser: Browser, ops: Served) -> AsyncIterator[Tab]:
    """A signed-in tab. It is shared, because loading the first page is slow."""
    async with tab(browser, ops) as found:
        yield found


@pytest.fixture
def ours(signed_in: Tab) -> Iterator[Tab]:
    """The shared tab. It fails the test if the browser reports an error."""
    signed_in.forget()
    yield signed_in
    signed_in.check()
