"""Sign-in with the keyboard, and pages behind nginx with a prefix."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from tests.console.browser.served import AUTH, KEY, NARROW_KEY, PAGES, Served, file_with, served
from tests.console.browser.tab import Tab, tab
from tests.interop.nginx import PREFIX, nginx

pytestmark = [pytest.mark.build, pytest.mark.asyncio(loop_scope="session")]

REFUSED = r"status of 40[13]"
"""The console message of the browser for an expected error response."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A daemon that requires a key."""
    async with served(tmp_path_factory.mktemp("locked"), file_with(auth=AUTH)) as found:
        yield found


async def sign_in(ours: Tab, key: str) -> None:
    await ours.page.goto(ours.served.console)
    await ours.page.get_by_label("Key or token").fill(key)
    await ours.page.get_by_role("button", name="Sign in").click()


async def test_token_in_the_link_signs_in_and_leaves_the_url(ours: Tab) -> None:
    assert "token" in ours.served.link
    assert "token" not in ours.page.url
    await ours.page.get_by_role("button", name="Sign out").click()
    await expect(ours.heading("Sign in")).to_be_visible()
    await ours.page.reload()
    await expect(ours.heading("Sign in")).to_be_visible()
    ours.tolerated.append(REFUSED)


async def test_key_in_the_url_is_ignored_and_removed(browser: Browser, locked: Served) -> None:
    async with tab(browser, locked, signs_in=False) as ours:
        ours.tolerated.append(REFUSED)
        await ours.page.goto(f"{locked.console}traffic?token={KEY}&q=kept")
        await expect(ours.heading("Sign in")).to_be_visible()
        assert ours.page.url == f"{locked.console}traffic?q=kept"


async def test_key_without_the_scope_is_an_error_that_names_it(browser: Browser, locked: Served) -> None:
    async with tab(browser, locked, signs_in=False) as ours:
        ours.tolerated.append(REFUSED)
        await sign_in(ours, "no-such-key-0123456789")
        await expect(ours.page.get_by_role("alert")).to_be_visible()
        await sign_in(ours, NARROW_KEY)
        await expect(ours.page.get_by_role("alert")).to_contain_text("console")
        assert await ours.serious_findings() == []
        await sign_in(ours, KEY)
        await expect(ours.heading("Overview")).to_be_visible()
        await expect(ours.page.get_by_text("ada").first).to_be_visible()
        ours.check()


async def test_tool_can_be_called_with_the_keyboard_only(browser: Browser, locked: Served) -> None:
    async with tab(browser, locked, signs_in=False) as ours:
        ours.tolerated.append(REFUSED)
        page = ours.page
        await page.goto(locked.console)
        await expect(page.get_by_label("Key or token")).to_be_focused()
        await page.keyboard.type(KEY)
        await page.keyboard.press("Enter")
        await expect(ours.heading("Overview")).to_be_visible()
        await _tab_to(ours, page.get_by_role("link", name="Catalog", exact=True))
        await page.keyboard.press("Enter")
        await expect(ours.heading("Catalog")).to_be_focused()
        await expect(ours.row("greet")).to_be_visible()
        await page.keyboard.press("/")
        await page.keyboard.type("says hello")
        await expect(page.locator("[data-count='1']")).to_be_visible()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("complementary", name="Details")).to_be_visible()
        await _tab_to(ours, page.locator("[data-panel]").get_by_role("link", name="Call", exact=True))
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("name")).to_be_visible()
        await _tab_to(ours, page.get_by_label("name"))
        await page.keyboard.type("Ada")
        await page.keyboard.press("Control+Enter")
        await expect(page.get_by_role("region", name="Result")).to_contain_text("Hello, Ada")
        ours.check()


async def _tab_to(ours: Tab, wanted: Locator) -> None:
    """Press the tab key until an element has the focus."""
    for _ in range(120):
        await ours.page.keyboard.press("Tab")
        if await wanted.evaluate("(it) => it === document.activeElement"):
            return
    pytest.fail(f"the tab key does not lead to {wanted}")


@pytest.mark.parametrize("has_prefix", [True, False], ids=["prefix", "root"])
async def test_every_page_works_behind_nginx(browser: Browser, tmp_path: Path, *, has_prefix: bool) -> None:
    (tmp_path / "nginx").mkdir()
    (tmp_path / "daemon").mkdir()
    listen = f"public_url: 'http://tools.test{PREFIX if has_prefix else ''}', trusted_proxies: [127.0.0.1], "
    listen += "allowed_hosts: [127.0.0.1, tools.test]"
    async with (
        served(tmp_path / "daemon", file_with(auth=AUTH, listen=listen)) as it,
        nginx(tmp_path / "nginx", daemon=f"127.0.0.1:{it.port}", prefix=has_prefix) as proxy,
        tab(browser, replace(it, link=f"{proxy.url}/-/console/"), signs_in=False) as ours,
    ):
        ours.tolerated.append(REFUSED)
        await sign_in(ours, KEY)
        await expect(ours.heading("Overview")).to_be_visible()
        for name in PAGES:
            await ours.open(name)
        await expect(ours.page.get_by_text("Live")).to_be_visible()
        await ours.open("call", tool="greet")
        await ours.page.get_by_label("name").fill("Ada")
        await ours.page.get_by_role("button", name="Run").click()
        await expect(ours.page.get_by_role("region", name="Result")).to_contain_text("Hello, Ada")
        ours.check()


async def test_expired_link_is_explained(ours: Tab) -> None:
    ours.tolerated.append(REFUSED)
    await ours.page.context.clear_cookies()
    await ours.page.goto(f"{ours.served.console}?token=expired")
    await expect(ours.page.get_by_role("alert")).to_contain_text("This link is invalid or has expired")
    assert "token" not in ours.page.url
