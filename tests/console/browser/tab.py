"""A browser tab that fails the test after a script error or a violation of the page's policy."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Error, Locator, Page, expect

from tests.console.browser.served import Served
from tests.node import NodePackage, find_package
from tests.programs import skip_or_fail

MILLISECONDS: Final = 30_000
"""The timeout for expected content."""
WIDE: Final = (1280, 800)
NARROW: Final = (360, 740)
PROJECT: Final = Path(__file__).parents[3]
Scheme = Literal["light", "dark"]
SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")

expect.set_options(timeout=MILLISECONDS)


@dataclass(kw_only=True)
class Tab:
    """A page and its errors."""

    page: Page
    served: Served
    faults: list[str] = field(default_factory=list)
    tolerated: list[str] = field(default_factory=list)
    """Patterns of errors that a test causes on purpose."""

    async def open(self, name: str, **query: str) -> None:
        """Load a page, and wait for its heading."""
        await self.page.goto(self.served.page(name, **query))
        await expect(self.heading(name.capitalize())).to_be_visible()

    def heading(self, name: str) -> Locator:
        return self.page.get_by_role("heading", name=name, level=1, exact=True)

    def row(self, text: str) -> Locator:
        """Return the row of the page's table that contains a text."""
        return self.page.locator("[role=grid] .table-body [role=row]", has_text=text)

    def forget(self) -> None:
        """Remove the errors of earlier tests."""
        self.faults.clear()
        self.tolerated.clear()

    def check(self) -> None:
        """Fail if the browser reported an error."""
        faults = [each for each in self.faults if not any(re.search(pattern, each) for pattern in self.tolerated)]
        assert faults == []

    async def overflow(self) -> list[str]:
        """Return the elements that cause horizontal scrolling."""
        found: list[str] = await self.page.evaluate(
            """() => document.documentElement.scrollWidth <= innerWidth ? [] :
                [...document.querySelectorAll("body *")]
                  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
                  .map((each) => each.outerHTML.slice(0, 120))"""
        )
        return found

    async def serious_findings(self) -> list[str]:
        """Return the serious accessibility problems that axe finds."""
        if not await self.page.evaluate("() => 'axe' in window"):
            # Through the debugger, because the page's policy forbids other scripts.
            await self.page.evaluate(_axe())
        results: dict[str, Any] = await self.page.evaluate(
            "() => axe.run(document, {resultTypes: ['violations'], iframes: false})"
        )
        return [
            f"{found['id']} ({found['impact']}): {node['html'][:160]} {node['failureSummary']}"
            for found in results["violations"]
            if found["impact"] in {"serious", "critical"}
            for node in found["nodes"]
        ]

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(f"{message.type}: {message.text} ({message.location['url']})")

    def _fail(self, error: Error) -> None:
        self.faults.append(f"exception: {error.stack or error.message}")

    def watch(self) -> None:
        self.page.set_default_timeout(MILLISECONDS)
        self.page.on("console", self._hear)
        self.page.on("pageerror", self._fail)


@asynccontextmanager
async def tab(
    browser: Browser,
    served: Served,
    *,
    size: tuple[int, int] = WIDE,
    signs_in: bool = True,
) -> AsyncIterator[Tab]:
    """Open a new tab, and sign in with the link if `signs_in`."""
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="light",
        ignore_https_errors=True,
        reduced_motion="reduce",
    )
    try:
        found = await _watched(context, served)
        if signs_in:
            await found.page.goto(served.link)
            await expect(found.heading("Overview")).to_be_visible()
        yield found
    finally:
        await context.close()


async def _watched(context: BrowserContext, served: Served) -> Tab:
    found = Tab(page=await context.new_page(), served=served)
    found.watch()
    return found


def _axe() -> str:
    found = find_package(PROJECT / "tests/console", name="axe-core", variable="MCP_GATEWAY_TEST_AXE")
    package = skip_or_fail(found) if isinstance(found, str) else found
    assert isinstance(package, NodePackage)
    return (package.directory / "axe.min.js").read_text()
