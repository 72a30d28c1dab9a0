"""Two people use one daemon with their own accounts, and no secret appears in logs, state, traces or the console.

The daemon runs in a separate process. Its provider, MCP server, database and browser sign-ins are real.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import pytest

from tests.behaviour.test_user_sign_in import Served
from tests.console.test_documented_paths import FILLED_IN, REQUESTS
from tests.e2e.daemon import Daemon, serving
from tests.identity.browser import Browser
from tests.identity.openid_provider import OPAQUE, SECRET, OpenIdProvider
from tests.identity.test_openid_provider import profile, result, text, until_listed, upstream
from tests.ports import free_port
from tests.postgresql import Postgresql
from tests.telemetry.collector import Collector, collecting

pytestmark = pytest.mark.build

SECONDS: Final = 300
QUERY: Final = "SET LOCAL ROLE note_reader; SELECT item FROM notes_of_people ORDER BY item"


def file_for(issuer: str, notes: str, database: str) -> dict[str, Any]:
    entry = {
        "issuer": issuer,
        "audience": OPAQUE,
        "introspection": {"client_id": "resource-server", "client_secret": SECRET},
        "browser": {"client_id": "gateway", "client_secret": "${env:PAGES_SECRET}"},
        "roles": {"scopes": {"platform-admins": ["gateway:admin"]}},
    }
    api, mcp = profile(issuer), upstream(notes)
    sql = {"database": "shop", "query": QUERY, "settings": {"app.user_id": "{{ caller.subject }}"}}
    return {
        "auth": {"oauth": entry},
        "listen": {"console": True},
        "databases": {"shop": {"url": database}},
        **api,
        **mcp,
        "tools": {**api["tools"], "orders": {"description": "My orders.", "sql": sql}},
    }


async def prepare(postgresql: Postgresql) -> None:
    await postgresql.run(
        "CREATE ROLE note_reader",
        "CREATE TABLE notes_of_people (owner text, item text)",
        "INSERT INTO notes_of_people VALUES ('ann', 'apple'), ('bob', 'brick')",
        "GRANT SELECT ON notes_of_people TO note_reader",
        "ALTER TABLE notes_of_people ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY own ON notes_of_people USING (owner = current_setting('app.user_id'))",
    )


@asynccontextmanager
async def daemon(config: Path, port: int, collector: Collector) -> AsyncIterator[tuple[Daemon, Served]]:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "PAGES_SECRET": SECRET,
    }
    flags = ("--http", f"127.0.0.1:{port}", "--state-dir", str(config.parent / "state"), "--log-level", "debug")
    async with serving(config, *flags, environment=environment) as process, aiohttp.ClientSession() as http:
        yield process, Served(await process.url(), http)


async def sign_in(served: Served, token: str, browser: Browser, tool: str) -> None:
    """Follow the link of an error, and sign in to the gateway with OpenID Connect on the way."""
    found = re.search(r"http://\S+/-/sign-in/[\w-]+", await text(served, token, tool))
    assert found is not None
    page = await asyncio.to_thread(browser.visit, found[0])
    assert (page.status, "You are signed in to" in page.text) == (200, True), page.text


async def test_users_get_their_own_data_and_secrets_stay_hidden(
    tmp_path: Path, openid: OpenIdProvider, notes: str, postgresql: Postgresql
) -> None:
    await prepare(postgresql)
    config, port = tmp_path / "config.yaml", free_port()
    config.write_text(json.dumps(file_for(openid.issuer, notes, postgresql.url)))
    tokens = {user: await openid.token(user, OPAQUE) for user in ("ann", "bob", "carol", "root")}
    browsers = {user: Browser(user) for user in tokens}
    shown: list[str] = []
    async with asyncio.timeout(SECONDS), collecting() as collector:
        async with daemon(config, port, collector) as (first, served):
            for user in ("ann", "bob"):
                await sign_in(served, tokens[user], browsers[user], "notes_sign_in")
                await sign_in(served, tokens[user], browsers[user], "profile")
            await openid.configure(
                forgotten=[
                    each["body"]["access_token"]
                    for each in await openid.requests("/token", grant_type="authorization_code")
                    if each["parameters"].get("client_id") != "desktop"
                ]
            )
            await until_listed(served, tokens["ann"], "notes_whoami")
            await check_own_data(served, tokens)
            await check_third_person(served, tokens["carol"])
            shown += await console_of(served, browsers["root"])
            first.process.kill()
            await first.process.wait()
        refreshed = len(await openid.requests("/token", grant_type="refresh_token"))
        assert refreshed == 4  # two people at two services
        async with daemon(config, port, collector) as (second, served):
            await until_listed(served, tokens["ann"], "notes_whoami")
            await check_own_data(served, tokens)
            assert len(await openid.requests("/token", grant_type="refresh_token")) == refreshed
            await check_sign_out(served, openid, tokens, browsers["ann"])
            shown += await console_of(served, browsers["root"])
            await collector.find(lambda span: span.name.endswith("orders"))
        log = "".join(first.errors + second.errors)
    state = b"".join(file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file())
    haystacks = {
        "log": log.encode(),
        "state": state,
        "traces": b"".join(collector.raw),
        "console": "".join(shown).encode(),
    }
    # Control: each output contains its expected content.
    for name, expected in {
        "log": b"user signed in to a service",
        "state": b"CREATE TABLE encrypted",
        "traces": b"orders",
        "console": b"connections.profile",
    }.items():
        assert expected in haystacks[name], name
    secrets = {SECRET, *tokens.values(), *await openid.secrets()}
    assert len(secrets) > 30
    found = {name for name, text in haystacks.items() for each in forms_of(secrets) if each in text}
    assert found == set()


async def check_own_data(served: Served, tokens: dict[str, str]) -> None:
    for user, item in (("ann", "apple"), ("bob", "brick")):
        token = tokens[user]
        assert await text(served, token, "notes_whoami") == f"{user} at the MCP server"
        assert json.loads(await text(served, token, "profile"))["sub"] == user
        orders = await result(served, token, "orders")
        assert orders["structuredContent"]["rows"] == [{"item": item}]


async def check_third_person(served: Served, token: str) -> None:
    """Check that a third person gets a link and no data."""
    for tool, title in (("notes_whoami", "notes"), ("profile", "profile")):
        found = await result(served, token, tool)
        [content] = found["content"]
        assert found["isError"]
        sentence = (
            rf"{title} requires that you sign in\. Open http://\S+/-/sign-in/\S+ in your browser, then call again"
        )
        assert re.fullmatch(sentence, content["text"])
    assert (await result(served, token, "orders"))["structuredContent"]["rows"] == []


async def check_sign_out(served: Served, openid: OpenIdProvider, tokens: dict[str, str], browser: Browser) -> None:
    last = await openid.requests("/token", grant_type="refresh_token")
    page = await asyncio.to_thread(browser.open, f"{served.base}/-/connections")
    assert page.text.count("signed in since") == 2
    for _ in range(2):
        form = next(each for each in page.forms if each.fields["action"] == "sign_out")
        page = await asyncio.to_thread(browser.submit, page, form)
    assert page.text.count("signed in since") == 0
    revoked = {each["parameters"]["token"] for each in await openid.requests("/token/revocation")}
    assert len(revoked) == 2
    assert revoked <= {each["body"]["refresh_token"] for each in last}
    for tool in ("notes_whoami", "profile"):
        assert "/-/sign-in/" in await text(served, tokens["ann"], tool)
    assert await text(served, tokens["bob"], "notes_whoami") == "bob at the MCP server"
    assert json.loads(await text(served, tokens["bob"], "profile"))["sub"] == "bob"


async def console_of(served: Served, browser: Browser) -> list[str]:
    """Return what an operator can read: pages, the console API, the configuration, metrics."""
    page = await asyncio.to_thread(browser.visit, f"{served.base}/-/connections")
    assert "people: " in page.text
    shown = [page.text]
    paths = [
        path.format_map(FILLED_IN) for method, path in REQUESTS if method == "GET" and not path.endswith("/events")
    ]
    for path in [*paths, "/-/status", "/-/config", "/metrics", "/-/ready"]:
        page = await asyncio.to_thread(browser.open, served.base + path)
        shown.append(page.text)
    return shown


def forms_of(secrets: Iterable[str]) -> list[bytes]:
    """Return secrets unchanged, and encoded as in headers and forms."""
    return [
        form
        for each in secrets
        for form in (each.encode(), quote(each, safe="").encode(), base64.b64encode(each.encode()))
    ]
