"""Sign-ins that are shared by replicas over Redis and by the workers of one daemon."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.behaviour.test_user_sign_in import ANN, BOB, Served
from tests.e2e.daemon import Daemon, serving
from tests.identity.browser import Browser, Page
from tests.identity.openid_provider import SECRET, OpenIdProvider
from tests.identity.test_openid_provider import file_with, profile, text, until_listed, upstream
from tests.identity.test_two_people import forms_of
from tests.ports import free_port
from tests.redis_server import RedisServer, redis_server
from tests.replicas import KEY

pytestmark = pytest.mark.build

SECONDS: Final = 240


@asynccontextmanager
async def serving_several(
    folder: Path, file: dict[str, Any], *, workers: bool
) -> AsyncIterator[tuple[Sequence[Served], str, RedisServer, Sequence[Daemon]]]:
    """Serve a file with two replicas, or with two workers of one daemon. Yield them, their common URL and their store.

    Each request uses a new connection, so that it can reach either worker.
    """
    ports = [free_port()] * 2 if workers else [free_port(), free_port()]
    public = f"http://127.0.0.1:{ports[0]}"
    config = folder / "config.yaml"
    config.write_text(json.dumps({**file, "listen": {"public_url": public}}))
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(redis_server(folder / "redis", "--rdbcompression", "no"))
        environment = {"MCP_GATEWAY_STORE": redis.url, "MCP_GATEWAY_SECRET_KEY": KEY}
        daemons = []
        for port in dict.fromkeys(ports):
            flags = (
                "--http",
                f"127.0.0.1:{port}",
                "--state-dir",
                "none",
                "--log-level",
                "debug",
                *(("--workers", "2") if workers else ()),
            )
            daemon = await stack.enter_async_context(
                serving(config, *flags, environment=environment, is_forked=not workers)
            )
            await daemon.event("workers ready" if workers else "listening")
            daemons.append(daemon)
        connections = [
            await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)))
            for _ in ports
        ]
        served = [Served(f"http://127.0.0.1:{port}/mcp", http) for port, http in zip(ports, connections, strict=True)]
        yield served, public, redis, daemons


async def sign_in_across(served: Sequence[Served], public: str, key: str, user: str, tool: str) -> Page:
    """Get a link from one replica, open it at the other, and deliver the callback to the first one."""
    one, other = served
    found = re.search(r"http://\S+/-/sign-in/[\w-]+", await text(one, key, tool))
    assert found is not None
    browser = Browser(user, key=key, origins={public: other.base})
    page = await asyncio.to_thread(browser.visit, found[0], until=f"{public}/-/sign-in/callback/")
    browser.origins[public] = one.base
    return await asyncio.to_thread(browser.open, page.url)


@pytest.mark.parametrize("workers", [False, True], ids=["replicas", "workers"])
async def test_sign_ins_are_shared(tmp_path: Path, openid: OpenIdProvider, notes: str, *, workers: bool) -> None:
    file = file_with(upstream(notes), profile(openid.issuer))
    async with (
        asyncio.timeout(SECONDS),
        serving_several(tmp_path, file, workers=workers) as (served, public, redis, daemons),
    ):
        page = await sign_in_across(served, public, ANN, "ann", "notes_sign_in")
        assert (page.status, "You are signed in to notes" in page.text) == (200, True), page.text
        page = await sign_in_across(served, public, ANN, "ann", "profile")
        assert (page.status, "You are signed in to profile" in page.text) == (200, True), page.text
        for each in served:
            await until_listed(each, ANN, "notes_whoami", requests=12)
        assert len(await openid.requests("/reg")) == 1
        # The provider forgets the access tokens. One request per service refreshes them for all calls of all processes.
        for count in (1, 2, 3):
            issued = await openid.requests("/token")
            await openid.configure(forgotten=[each["body"]["access_token"] for each in issued])
            await call_at_once(served)
            refreshes = await openid.requests("/token", grant_type="refresh_token")
            assert [each["status"] for each in refreshes] == [200, 200] * count
        for each in served:
            assert "/-/sign-in/" in await text(each, BOB, "profile")

        form = {"entry": "upstreams.notes", "action": "sign_out", "token": ANN}
        async with served[0].http.post(f"{served[0].base}/-/connections", data=form) as response:
            assert response.status == 200
        assert len(await openid.requests("/token/revocation")) == 1
        for each in (*served, *served):
            assert "/-/sign-in/" in await text(each, ANN, "notes_whoami")
            assert '"ann"' in await text(each, ANN, "profile")
        stored = [await redis.client.dump(key) for key in await redis.client.keys()]
        assert len(stored) > 3
        everything = b"".join(each for each in stored if each is not None)
        logs = "".join(line for each in daemons for line in each.errors).encode()
        assert b"user signed in to a service" in logs
        assert not [each for each in forms_of(await openid.secrets()) if each in everything + logs]


async def test_browser_sessions_are_shared(tmp_path: Path, openid: OpenIdProvider) -> None:
    client = {"client_id": "gateway", "client_secret": SECRET}
    file = {**profile(openid.issuer), "auth": {"oauth": {"issuer": openid.issuer, "browser": client}}}
    async with asyncio.timeout(SECONDS), serving_several(tmp_path, file, workers=False) as (served, public, _, _):
        one, other = served
        browser = Browser("ann", origins={public: one.base})
        start, callback = f"{public}/-/connections", f"{public}/-/sign-in/browser/callback"
        page = await asyncio.to_thread(browser.visit, start, until=callback)
        browser.origins[public] = other.base
        page = await asyncio.to_thread(browser.visit, page.url)
        assert (page.url, "connections.profile" in page.text) == (start, True), page.text
        browser.origins[public] = one.base
        page = await asyncio.to_thread(browser.visit, start)
        assert "connections.profile" in page.text, page.text


async def call_at_once(served: Sequence[Served]) -> None:
    calls = [text(each, ANN, tool) for each in (*served, *served, *served) for tool in ("notes_whoami", "profile")]
    said = await asyncio.gather(*calls)
    assert set(said[::2]) == {"ann at the MCP server"}
    assert {each.replace(" ", "") for each in said[1::2]} == {'{"sub":"ann","groups":[]}'}
