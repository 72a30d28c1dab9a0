"""Every page: content, accessibility, both colour schemes and narrow screens."""

import asyncio
import re
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
    ("catalog", {}, "Says hello to someone."),
    ("catalog", {"open": "tool:greet"}, "inputSchema"),
    ("catalog", {"offered": "no", "open": "tool:absent"}, "Not available: "),
    ("call", {}, "Nothing selected"),
    ("call", {"tool": "greet"}, "Whom to greet"),
    ("call", {"prompt": "triage"}, "Service name"),
    ("traffic", {}, "greet"),
    ("sessions", {}, "None open"),
    ("tasks", {}, "No tasks"),
    ("upstreams", {"open": "gone"}, "connection refused"),
    ("config", {}, "Says hello to someone."),
    ("config", {"tab": "reloads"}, "start"),
    ("limits", {}, "limits.sessions"),
]
"""Pages, the element to open, and a text of the daemon that must be visible."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def looker(browser: Browser, ops: Served) -> AsyncIterator[Tab]:
    """A tab that all tests of this file share, because they change nothing."""
    await ops.call("greet", name="Ada")
    async with tab(browser, ops) as found:
        yield found


@pytest.mark.parametrize(
    ("name", "query", "text"), SHOWN, ids=lambda value: value if isinstance(value, str) else "&".join(value)
)
async def test_page_is_complete_and_accessible(looker: Tab, name: str, query: Mapping[str, str], text: str) -> None:
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


@pytest.mark.parametrize("width", [NARROW[0], 768, 1440])
async def test_table_headers_are_not_truncated(looker: Tab, width: int) -> None:
    await looker.page.set_viewport_size({"width": width, "height": NARROW[1]})
    for name, query in [
        *((name, {}) for name in ("catalog", "traffic", "sessions", "tasks", "upstreams", "limits")),
        ("sessions", {"tab": "streams"}),
        ("sessions", {"tab": "clients"}),
    ]:
        await looker.open(name, **query)
        heads = looker.page.locator("[role=columnheader]:not(.hidden)")
        await expect(heads.first).to_be_visible()
        cut = await heads.evaluate_all(
            "(all) => all.filter((it) => it.scrollWidth > it.clientWidth).map((it) => it.textContent.trim())"
        )
        assert cut == [], (name, query)


async def test_transport_is_not_truncated(looker: Tab) -> None:
    await looker.page.set_viewport_size({"width": 1440, "height": 800})
    await looker.open("traffic")
    cell = looker.row("greet").first.get_by_role("gridcell", name="streamable-http")
    assert await cell.evaluate("(it) => it.scrollWidth <= it.clientWidth")


async def test_header_names_a_failed_upstream_and_the_title_names_the_server(looker: Tab) -> None:
    await looker.open("overview")
    header = looker.page.locator(".top")
    await expect(header).to_contain_text("1 upstream down")
    await expect(header).not_to_contain_text("ready")
    await expect(looker.page).to_have_title("Ops tools – Overview")


async def test_plot_has_axes_and_shows_the_values_of_a_time(looker: Tab) -> None:
    await looker.page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    await looker.open("overview")
    plot = looker.page.locator(".plot").first
    await expect(plot.locator(".plot-values span")).to_have_count(3)
    await expect(looker.page.get_by_role("heading", name=re.compile("Since the start"))).to_be_visible()
    await plot.locator("svg").hover(position={"x": 5, "y": 20})
    await expect(plot.locator(".plot-time")).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))
    await looker.page.keyboard.press("Escape")


async def test_narrow_page_folds_the_navigation(looker: Tab) -> None:
    page = looker.page
    await page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    await looker.open("overview")
    link = page.get_by_role("link", name="Limits", exact=True)
    await expect(link).to_be_hidden()
    await page.get_by_role("button", name="Overview").click()
    assert await looker.serious_findings() == []
    assert await looker.overflow() == []
    await link.click()
    await expect(looker.heading("Limits")).to_be_visible()
    await expect(link).to_be_hidden()
    await page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    await expect(link).to_be_visible()


async def test_keys_open_pages_and_their_list(looker: Tab) -> None:
    page = looker.page
    await page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    await looker.open("overview")
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(dialog).to_contain_text("Go to Catalog")
    assert await looker.serious_findings() == []
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    for keys, name in [("gt", "Traffic"), ("gl", "Limits"), ("go", "Overview")]:
        await page.keyboard.type(keys)
        await expect(looker.heading(name)).to_be_visible()
    await looker.open("catalog")
    await page.keyboard.press("/")
    await page.keyboard.type("gt")
    await expect(page.get_by_label("Search the catalog")).to_have_value("gt")


async def test_configuration_has_colours(looker: Tab) -> None:
    await looker.open("config")
    assert await looker.page.locator(".yaml-key").first.inner_text() == "server"
    assert await looker.serious_findings() == []


async def test_narrow_page_shows_the_outcome_of_calls(looker: Tab) -> None:
    await looker.page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    await looker.open("traffic")
    await expect(looker.row("greet").first).to_contain_text("ok")
    assert await looker.overflow() == []


async def test_colour_choice_is_stored(browser: Browser, ops: Served) -> None:
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


async def test_traffic_shows_no_empty_message_while_loading(looker: Tab) -> None:
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
