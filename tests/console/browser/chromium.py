"""Debian's Chromium, driven by Playwright."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from playwright.async_api import Browser, async_playwright

from tests.programs import need

FLAGS: Final = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking")
"""Chromium's sandbox does not work as root, and /dev/shm can be small in containers."""


@asynccontextmanager
async def chromium(*flags: str) -> AsyncIterator[Browser]:
    program = need("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=[*FLAGS, *flags])
        yield browser
        await browser.close()
