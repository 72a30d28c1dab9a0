"""The documentation as a website: complete, built without warnings and without other hosts, and usable on a phone."""

import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Page, Request, expect

from tests.console.browser.chromium import chromium
from tests.local_server import listening
from tests.programs import need_named_by

PROJECT: Final = Path(__file__).parents[2]
CONFIG: Final = PROJECT / "docs" / "site" / "mkdocs.yml"
PAGES: Final = re.findall(r"^ +- (?:[^:\n]*: )?(\S+\.md)$", CONFIG.read_text(), re.MULTILINE)
SECONDS: Final = 180


def test_navigation_has_every_page() -> None:
    docs = {path.relative_to(PROJECT).as_posix() for path in PROJECT.glob("docs/**/*.md")}
    assert docs <= set(PAGES)
    assert [page for page in PAGES if not (PROJECT / page).exists()] == []
    assert len(PAGES) == len(set(PAGES))
    index = (PROJECT / "docs" / "README.md").read_text()
    assert [page for page in docs if page != "docs/README.md" and f"({page.removeprefix('docs/')})" not in index] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mkdocs = need_named_by("MCP_GATEWAY_TEST_MKDOCS", what="the `mkdocs` of an environment with the group `docs`")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [mkdocs, "build", "--strict", "--quiet", "--config-file", CONFIG, "--site-dir", folder],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.mark.build
def test_links_point_to_pages_and_assets_of_the_site(site: Path) -> None:
    for page in site.rglob("index.html"):
        for target in re.findall(r"""<(?:a|img|link|script)\b[^>]*\s(?:href|src)="?([^\s">#]+)""", page.read_text()):
            if not re.match("[a-z]+:", target):
                assert (page.parent / target).exists(), f"{page.relative_to(site)}: {target}"
        loaded = re.findall(r"""<(?:img|link|script)\b[^>]*\s(?:href|src)="?(\w+:[^\s">]+)""", page.read_text())
        assert [url for url in loaded if not url.startswith("data:")] == [], page


@pytest.mark.build
def test_every_page_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {page.removesuffix("README.md").removesuffix(".md").rstrip("/") for page in PAGES} <= {
        location.rstrip("/") for location in found
    }


@pytest_asyncio.fixture
async def page(site: Path) -> AsyncIterator[Page]:
    """A tab with the width of a phone. Fails the test if a page sends a request to another host."""
    application = web.Application()

    async def serve(request: web.Request) -> web.FileResponse:
        path = site / request.match_info["path"]
        return web.FileResponse(path / "index.html" if path.is_dir() else path)

    application.router.add_get("/{path:.*}", serve)
    foreign: list[str] = []
    async with listening(application) as port, chromium() as browser:
        base = f"http://127.0.0.1:{port}/"

        def check(request: Request) -> None:
            if not request.url.startswith((base, "data:", "blob:")):
                foreign.append(request.url)

        context = await browser.new_context(base_url=base, viewport={"width": 400, "height": 900})
        context.set_default_timeout(SECONDS * 1000)
        tab = await context.new_page()
        tab.on("request", check)
        yield tab
        assert foreign == []


@pytest.mark.build
async def test_pages_fit_on_a_phone(page: Page) -> None:
    for name in PAGES:
        await page.goto(name.removesuffix("README.md").removesuffix(".md"))
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(overflow) <= 0, name


@pytest.mark.build
async def test_search_finds_a_key_in_the_reference(page: Page) -> None:
    async with page.expect_response("**/search_index.json"):
        await page.goto("")
    await page.locator("label[for=__search]").first.click()
    await page.get_by_role("textbox", name="Search").press_sequentially("tmp_size")
    found = page.locator(".md-search-result__link[href*='docs/reference']")
    await expect(found.first).to_be_visible(timeout=SECONDS * 1000)
