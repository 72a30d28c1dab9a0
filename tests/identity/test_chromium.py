"""People sign in to the gateway and to a service with Chromium. The provider is another site than the gateway."""

import asyncio
import re
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from playwright.async_api import ConsoleMessage, Page, expect

from tests.behaviour.test_user_sign_in import ANN, serving
from tests.console.browser.chromium import chromium
from tests.identity.openid_provider import OPAQUE, SECRET, OpenIdProvider, running_provider
from tests.identity.test_openid_provider import profile, text

pytestmark = pytest.mark.build

SECONDS: Final = 240
MILLISECONDS: Final = 60_000


async def approve(page: Page, user: str = "") -> None:
    """Complete the pages of the provider: sign in as `user` if there is no session, and consent."""
    if user:
        await page.locator("[name=login]").fill(user)
        await page.locator("[name=password]").fill("any")
        await page.get_by_role("button", name="Sign-in").click()
    await page.get_by_role("button", name="Continue").click()


async def test_user_follows_a_link_and_signs_out(tmp_path: Path) -> None:
    expect.set_options(timeout=MILLISECONDS)
    with running_provider(tmp_path / "log", host="localhost") as issuer:
        entry = {
            "issuer": issuer,
            "audience": OPAQUE,
            "introspection": {"client_id": "resource-server", "client_secret": SECRET},
            "browser": {"client_id": "gateway", "client_secret": SECRET},
        }
        file = {**profile(issuer), "auth": {"oauth": entry, "api_keys": {"ann": {"secret": ANN}}}}
        faults: list[str] = []

        def note(message: ConsoleMessage) -> None:
            if message.type == "error":
                faults.append(message.text)

        async with (
            asyncio.timeout(SECONDS),
            aiohttp.ClientSession() as http,
            serving(tmp_path, file) as served,
            chromium() as browser,
        ):
            token = await OpenIdProvider(issuer=issuer, http=http).token("ann", OPAQUE)
            page = await browser.new_page()
            page.set_default_timeout(MILLISECONDS)
            page.on("console", note)
            # Fonts of the provider's pages.
            await page.route(re.compile("^https://"), lambda route: route.fulfill(status=204))
            found = re.search(r"http://\S+/-/sign-in/[\w-]+", await text(served, token, "profile"))
            assert found is not None
            await page.goto(found[0])
            await page.get_by_role("button", name="Sign in with localhost").click()
            await approve(page, "ann")
            await page.get_by_role("button", name="Sign in to profile").click()
            await approve(page)
            await expect(page.get_by_text("You are signed in to profile.")).to_be_visible()
            assert '"ann"' in await text(served, token, "profile")
            await page.goto(f"{served.base}/-/connections")
            await expect(page.get_by_text("signed in since")).to_be_visible()
            await page.get_by_role("button", name="Sign out").click()
            await expect(page.get_by_text("not signed in")).to_be_visible()
            assert "/-/sign-in/" in await text(served, token, "profile")
        assert faults == []
