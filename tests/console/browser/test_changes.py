"""Pages while the configuration or the connection changes."""

import signal
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.console.browser.served import AUTH, KEY, Served, file_with, served
from tests.console.browser.tab import NARROW, WIDE, tab
from tests.ports import free_port

pytestmark = [pytest.mark.build, pytest.mark.asyncio(loop_scope="session")]

MANY = 200


def with_many(text: str, *, description: str = "One of many.") -> str:
    tools = "\n".join(f"  many_{n:03}: {{description: {description}, content: x}}" for n in range(MANY))
    return text.replace("resources:", f"{tools}\nresources:", 1)


async def test_reload_updates_the_page_without_moving_it(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path, with_many(file_with())) as it, tab(browser, it) as ours:
        page = ours.page
        await ours.open("catalog")
        await expect(ours.row("greet")).to_be_visible()
        await ours.row("greet").focus()
        for _ in range(3):
            await page.keyboard.press("PageDown")
        # The focus moves in the next frame.
        await page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        focused = page.locator("[role=row]:focus")
        await expect(focused).to_be_visible()
        name = await focused.locator(".mono").inner_text()
        assert name.startswith("many_")
        before = await focused.bounding_box()
        it.save(with_many(file_with(), description="Changed.").replace("  greet:", "  alpha: {content: x}\n  greet:"))
        await expect(ours.row(name)).to_contain_text("Changed.")
        assert await page.locator("[role=row]:focus .mono").inner_text() == name
        after = await focused.bounding_box()
        assert before is not None
        assert after is not None
        assert abs(before["y"] - after["y"]) < 2
        await expect(page.locator("[data-reload=loaded]")).to_contain_text("1 added")
        ours.check()


async def test_invalid_file_is_shown_with_its_line_until_corrected(browser: Browser, tmp_path: Path) -> None:
    good = file_with()
    async with served(tmp_path, good) as it, tab(browser, it) as ours:
        page = ours.page
        await ours.open("overview")
        it.save(good.replace("description: Fails, always.", "descriptoin: Fails, always."))
        problems = page.get_by_role("region", name="Problems")
        await expect(problems).to_contain_text("The file was not loaded")
        await expect(problems).to_contain_text("descriptoin")
        await expect(problems.locator(".caret").first).to_contain_text("^")
        await expect(problems).to_contain_text("is still served")
        await expect(page.locator(".top")).to_contain_text("1 error in the file")
        await expect(page.locator(".top")).not_to_contain_text("ready")
        assert await ours.serious_findings() == []
        await problems.get_by_role("link").first.click()
        await expect(ours.heading("Config")).to_be_visible()
        await expect(page.get_by_text("descriptoin").first).to_be_visible()
        await page.go_back()
        it.save(good)
        await expect(problems).to_have_count(0)
        ours.check()


async def test_lost_connection_is_shown_and_restored(browser: Browser, tmp_path: Path) -> None:
    text = file_with(auth=AUTH, port=free_port())
    async with served(tmp_path, text) as it, tab(browser, it, signs_in=False) as ours:
        ours.tolerated += ["ERR_", "Failed to fetch", "status of 401"]
        page = ours.page
        await page.goto(it.console)
        await page.get_by_label("Key or token").fill(KEY)
        await page.get_by_role("button", name="Sign in").click()
        await expect(ours.heading("Overview")).to_be_visible()
        await ours.open("catalog")
        await expect(page.get_by_text("Live")).to_be_visible()
        it.daemon.signal(signal.SIGKILL)
        await it.daemon.exit_code()
        await expect(page.get_by_text("Connection lost")).to_be_visible()
        await page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
        assert await ours.overflow() == []
        await page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
        assert await ours.serious_findings() == []
        async with served(tmp_path, text.replace("Says hello to someone.", "Says hello again.")):
            await expect(page.get_by_text("Live")).to_be_visible()
            await expect(ours.row("greet")).to_contain_text("Says hello again.")
        ours.check()


async def test_missing_file_of_the_page_is_reported_and_retried(browser: Browser, ops: Served) -> None:
    async with tab(browser, ops) as ours:
        page = ours.page
        await page.route("**/static/data.js", lambda route: route.abort())
        await page.goto(ops.page("overview"))
        await expect(page.get_by_role("alert")).to_contain_text("A file of this page could not be loaded")
        await page.unroute_all()
        await page.get_by_role("button", name="Load the page again").click()
        await expect(ours.heading("Overview")).to_be_visible()
