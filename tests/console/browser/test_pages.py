"""Every page: content, accessibility, both colour schemes and narrow screens."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route, expect

from tests.console.browser.served import Served
from tests.console.browser.tab import NARROW, SCHEMES, WIDE, Tab, tab

pytestmark = [pytest.mark.build, pytest.mark.asyncio(loop_scope="session")]

SHOWN: list[tuple[str, Mapping[str, str], str]] = [
    ("overview", {}, "generation "),
    ("overview", {}, "1 upstream cannot be reached"),
    ("overview", {}, "upstream down"),
    ("catalog", {}, "Says hello to somebody."),
    ("catalog", {"open": "tool:greet"}, "inputSchema"),
    ("catalog", {"offered": "no", "open": "tool:absent"}, "Not available: "),
    ("call", {}, "Nothing selected"),
    ("call", {"tool": "greet"}, "Whom to greet"),
    ("call", {"prompt": "triage"}, "Service name"),
    ("traffic", {}, "greet"),
    ("sessions", {}, "None open"),
    ("tasks", {}, "No tasks"),
    ("upstreams", {"open": "gone"}, "connection refused"),
    ("config", {}, "Says hello to somebody."),
    ("config", {"tab": "reloads"}, "start"),
    ("limits", {}, "limits.sessions"),
]
"""Pages, what is open in them, and a text of the daemon's that stands there."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def looker(browser: Browser, ops: Served) -> AsyncIterator[Tab]:
    """A tab for all tests of this file, which change nothing."""
    await ops.call("greet", name="Ada")
    async with tab(browser, ops) as found:
        yield found


@pytest.mark.parametrize(
    ("name", "query", "text"), SHOWN, ids=lambda value: value if isinstance(value, str) else "&".join(value)
)
async def test_a_page_shows_what_is_there_and_keeps_nobody_out(
    looker: Tab, name: str, query: Mapping[str, str], text: str
) -> None:
    page = looker.page
    await page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    await looker.open(name, **query)
    await expect(page.get_by_text(text).filter(visible=True).first).to_be_visible()
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        assert await looker.serious_findings() == [], scheme
    await page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    assert await looker.overflow() == []
    assert await looker.serious_findings() == [], "360 pixels wide"
    looker.check()


async def test_a_narrow_page_shows_how_calls_ended(looker: Tab) -> None:
    await looker.page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    await looker.open("traffic")
    await expect(looker.row("greet").first).to_contain_text("ok")
    assert await looker.overflow() == []


async def test_the_colours_are_a_choice_that_lasts(browser: Browser, ops: Served) -> None:
    async with tab(browser, ops) as ours:
        page = ours.page
        background = "() => getComputedStyle(document.body).backgroundColor"
        light = await page.evaluate(background)
        await page.get_by_role("button", name="Switch to dark colours").click()
        dark = await page.evaluate(background)
        assert dark != light
        await page.reload()
        await expect(ours.heading("Overview")).to_be_visible()
        assert await page.evaluate(background) == dark
        ours.check()


async def test_traffic_does_not_say_that_there_is_none_while_it_is_loading(looker: Tab) -> None:
    page, answer = looker.page, asyncio.Event()

    async def later(route: Route) -> None:
        await answer.wait()
        await route.continue_()

    await page.route("**/-/api/calls?*", later)
    await page.goto("about:blank")
    await looker.open("traffic")
    await expect(page.get_by_text("Loading…")).to_be_visible()
    await expect(page.get_by_text("No calls yet")).to_have_count(0)
    answer.set()
    await expect(page.get_by_role("gridcell", name="greet").first).to_be_visible()
    await expect(page.get_by_text("Loading…")).to_have_count(0)
    await page.unroute("**/-/api/calls?*")
