"""Sign-in with the link, a key or a Bearer token, and the end of sign-ins."""

from collections.abc import Mapping
from http.cookies import Morsel, SimpleCookie
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import aiohttp
import pytest

from gateway.access.identity import Identity
from gateway.console.console_access import (
    HOURS,
    MAX_FAILURES,
    WINDOW_SECONDS,
    FailedSignIns,
    printed_token,
    session_end,
)
from gateway.console.static_files import PAGE_POLICY
from gateway.state.keys import random_keys
from gateway.wire.revisions import LATEST_MODERN
from tests.console.watching import CONSOLE, Watched, watched
from tests.messages import modern_request
from tests.ports import free_port

KEY, OPERATOR, STRANGER = "key-of-console-0123456789", "key-of-operator-0123456789", "key-of-nobody-0123456789"
TOOLS: Final = """
tools:
  hello: {description: Says hello., content: [{text: Hello.}]}
"""
CLOSED: Final = "  deploy: {description: Deploys., access: {scopes: [ops]}, content: [{text: Done.}]}\n"
AUTH: Final = f"""
auth:
  api_keys:
    ann: {{secret: {KEY}, scopes: [console]}}
    operator: {{secret: {OPERATOR}, scopes: ["gateway:admin", ops]}}
    stranger: {{secret: {STRANGER}}}
"""
MARK: Final = {"X-MCP-Gateway-Console": "1"}
NOTHING: Final = MappingProxyType[str, str]({})


class Browser:
    """Sends requests like a browser. Stores no cookies by itself."""

    def __init__(self, daemon: Watched, base: str = "") -> None:
        self.http = daemon.http
        self.origin = daemon.api.removesuffix("/-/api")
        self.base = f"{self.origin}{base}/-"

    async def get(
        self, path: str, *, cookie: str = "", fields: Mapping[str, str] = NOTHING, method: str = "GET"
    ) -> aiohttp.ClientResponse:
        headers = {**fields, **({"Cookie": cookie} if cookie else {})}
        response = await self.http.request(method, f"{self.base}{path}", headers=headers, allow_redirects=False)
        await response.read()
        return response

    async def post(
        self, path: str, body: Any, *, cookie: str = "", fields: Mapping[str, str] | None = None
    ) -> aiohttp.ClientResponse:
        """Send a POST, by default with the header fields of the page."""
        given = {**MARK, "Origin": self.origin, "Sec-Fetch-Site": "same-origin"} if fields is None else fields
        headers = {**given, **({"Cookie": cookie} if cookie else {})}
        response = await self.http.post(f"{self.base}{path}", json=body, headers=headers)
        await response.read()
        return response

    async def sign_in(self, token: str, **given: Any) -> str:
        response = await self.post("/api/session", {"token": token}, **given)
        assert response.status == 204, await response.text()
        return pair(response)


def cookie_of(response: aiohttp.ClientResponse) -> "Morsel[str]":
    [morsel] = SimpleCookie(response.headers["Set-Cookie"]).values()
    return morsel


def pair(response: aiohttp.ClientResponse) -> str:
    morsel = cookie_of(response)
    return f"{morsel.key}={morsel.value}"


async def test_printed_link_is_exchanged_for_a_cookie(tmp_path: Path) -> None:
    async with watched(tmp_path, TOOLS) as daemon:
        browser = Browser(daemon)
        link = daemon.gateway.console_link or ""
        entered = await browser.get(link.removeprefix(browser.base))
        assert (entered.status, entered.headers["Location"]) == (303, "./")
        assert entered.headers["Referrer-Policy"] == "no-referrer"
        morsel = cookie_of(entered)
        assert (morsel["path"], morsel["samesite"], morsel["httponly"], morsel["secure"]) == ("/-/", "Strict", True, "")
        facts = await (await browser.get("/api/", cookie=pair(entered))).json()
        assert (facts["api"], facts["console"], facts["caller"]["principal"]) == (1, True, None)
        assert facts["endpoint"] == daemon.url
        assert (await browser.get("/api/overview")).status == 401


async def test_page_is_public_and_cannot_be_framed(tmp_path: Path) -> None:
    async with watched(tmp_path, TOOLS) as daemon:
        browser = Browser(daemon)
        for path in ("/console/", "/console/traffic?method=tools%2Fcall", "/console/catalog"):
            page = await browser.get(path)
            assert (page.status, page.content_type) == (200, "text/html")
            assert page.headers["Content-Security-Policy"] == PAGE_POLICY
            assert page.headers["X-Content-Type-Options"] == "nosniff"
        again = await browser.get("/console/", fields={"If-None-Match": page.headers["ETag"]})
        assert (again.status, await again.read()) == (304, b"")
        bare = await browser.get("/console")
        assert (bare.status, bare.headers["Location"]) == (308, "console/")
        style = await browser.get("/console/static/style.css")
        assert (style.status, style.content_type) == (200, "text/css")
        assert (await browser.get("/console/static/nothing.js")).status == 404


async def test_key_with_the_scope_signs_in(tmp_path: Path) -> None:
    async with watched(tmp_path, CONSOLE + AUTH + TOOLS) as daemon:
        browser = Browser(daemon)
        assert daemon.gateway.console_link == f"{browser.base}/console/"
        cookie = await browser.sign_in(KEY)
        facts = await (await browser.get("/api/", cookie=cookie)).json()
        assert facts["caller"] == {"principal": "ann", "scopes": ["console"]}
        await browser.sign_in(OPERATOR)
        for token, status in ((STRANGER, 403), ("a-key-of-nobody", 401), ("", 400), ("two words", 400)):
            refused = await browser.post("/api/session", {"token": token})
            assert refused.status == status
            assert "Set-Cookie" not in refused.headers
            assert isinstance((await refused.json())["error"], str)
        for token, status in ((KEY, 200), (STRANGER, 403), ("a-key-of-nobody", 401)):
            answer = await browser.get("/api/overview", fields={"Authorization": f"Bearer {token}"})
            assert answer.status == status
        in_url = await browser.get(f"/console/?token={KEY}")
        assert in_url.status == 401
        assert "Set-Cookie" not in in_url.headers


async def test_page_calls_as_the_signed_in_caller(tmp_path: Path) -> None:
    views = "views: {small: {include: {tools: [hello]}}, closed: {access: {scopes: [ops]}}}\n"
    async with watched(tmp_path, CONSOLE + AUTH + views + TOOLS + CLOSED) as daemon:
        browser = Browser(daemon)
        cookies = {key: await browser.sign_in(key) for key in (KEY, OPERATOR)}
        own = {**MARK, "Origin": browser.origin, "MCP-Protocol-Version": LATEST_MODERN, "Mcp-Method": "tools/list"}

        async def listed(key: str, query: str = "") -> list[str] | int:
            answer = await browser.post(
                f"/api/mcp{query}", modern_request("tools/list"), cookie=cookies[key], fields=own
            )
            if answer.status != 200:
                return answer.status
            return [tool["name"] for tool in (await answer.json())["result"]["tools"]]

        assert await listed(KEY) == ["hello"]
        assert await listed(OPERATOR) == ["hello", "deploy"]
        assert await listed(OPERATOR, "?view=small") == ["hello"]
        assert (await listed(KEY, "?view=closed"), await listed(KEY, "?view=none")) == (404, 404)
        legacy = await browser.post("/api/mcp", modern_request("tools/list"), cookie=cookies[KEY])
        assert legacy.status == 400


async def test_removed_key_ends_the_sign_in(tmp_path: Path) -> None:
    async with watched(tmp_path, CONSOLE + AUTH + TOOLS) as daemon:
        browser = Browser(daemon)
        cookie, other = await browser.sign_in(KEY), await browser.sign_in(OPERATOR)
        assert (await browser.get("/api/overview", cookie=cookie)).status == 200
        daemon.config.write_text(CONSOLE + AUTH.replace(f"    ann: {{secret: {KEY}, scopes: [console]}}\n", "") + TOOLS)
        assert (await browser.post("/api/reload", {}, cookie=other)).status == 200
        assert (await browser.get("/api/overview", cookie=cookie)).status == 401
        assert (await browser.get("/api/overview", cookie=other)).status == 200


async def test_cookie_is_invalid_at_another_daemon(tmp_path: Path) -> None:
    shared = {"secret_key": "a-signing-key-of-both-daemons"}
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    async with (
        watched(folders[0], CONSOLE + AUTH + TOOLS, **shared) as one,
        watched(folders[1], CONSOLE + AUTH + TOOLS, **shared) as other,
    ):
        cookie = await Browser(one).sign_in(KEY)
        assert (await Browser(one).get("/api/overview", cookie=cookie)).status == 200
        # Also under the cookie name of the other listener, and with the Host of the first one.
        value = cookie.partition("=")[2]
        name = (await Browser(other).sign_in(KEY)).partition("=")[0]
        host = {"Host": Browser(one).origin.removeprefix("http://")}
        for stolen, fields in ((cookie, NOTHING), (f"{name}={value}", NOTHING), (cookie, host)):
            assert (await Browser(other).get("/api/overview", cookie=stolen, fields=fields)).status == 401


@pytest.mark.parametrize("public_url", ["https://tools.example.com/ops", "https://tools.example.com/ops/"])
async def test_cookie_path_follows_the_prefix_of_a_proxy(tmp_path: Path, public_url: str) -> None:
    listen = f"listen: {{console: true, public_url: '{public_url}'}}\n"
    async with watched(tmp_path, listen + TOOLS) as daemon:
        assert (daemon.gateway.console_link or "").startswith("https://tools.example.com/ops/-/console/?token=")
        token = (daemon.gateway.console_link or "").partition("token=")[2]
        base = (daemon.gateway.url or "").removesuffix("/mcp")
        daemon.api = f"{base}/-/api"
        for prefix in ("/ops", ""):  # proxies can remove or keep the prefix
            entered = await Browser(daemon, prefix).get(f"/console/?token={token}")
            morsel = cookie_of(entered)
            assert (morsel.key[:7], morsel["path"], morsel["secure"]) == ("__Host-", "/", True)
            assert (await Browser(daemon, prefix).get("/api/overview", cookie=pair(entered))).status == 200


async def test_cookie_path_comes_from_a_trusted_proxy(tmp_path: Path) -> None:
    async with watched(tmp_path, "listen: {console: true, trusted_proxies: [127.0.0.1]}\n" + TOOLS) as daemon:
        browser, token = Browser(daemon), (daemon.gateway.console_link or "").partition("token=")[2]
        proxied = {"X-Forwarded-Prefix": "/ops"}
        entered = await browser.get(f"/console/?token={token}", fields=proxied)
        assert cookie_of(entered)["path"] == "/ops/-/"
        assert (await browser.get("/api/overview", cookie=pair(entered), fields=proxied)).status == 200
        assert (await browser.get("/api/overview", cookie=pair(entered))).status == 401


async def test_sign_out_removes_the_cookie(tmp_path: Path) -> None:
    async with watched(tmp_path, TOOLS) as daemon:
        browser = Browser(daemon)
        own = {**MARK, "Origin": browser.origin}
        left = await browser.get("/api/session", method="DELETE", fields=own)
        assert (left.status, cookie_of(left).value, cookie_of(left)["max-age"]) == (204, "", "0")


async def test_daemon_without_console_has_only_the_admin_api(tmp_path: Path) -> None:
    async with watched(tmp_path, "listen: {console: false}\n" + TOOLS) as daemon:
        base = (daemon.gateway.url or "").removesuffix("/mcp")
        daemon.api = f"{base}/-/api"
        browser = Browser(daemon)
        assert daemon.gateway.console_link is None
        assert (await browser.get("/console/")).status == 404
        assert (await browser.get("/api/overview")).status == 404
        assert not (await (await browser.get("/api/")).json())["console"]
        for old, new in (("/status", "/api/status"), ("/config", "/api/manifest"), ("/tasks", "/api/tasks")):
            before, after = [await (await browser.get(path)).json() for path in (old, new)]
            assert before.keys() == after.keys()


@pytest.mark.parametrize(
    ("identity", "seconds"),
    [
        pytest.param(Identity(principal="ann"), HOURS * 3600, id="a key"),
        pytest.param(Identity(principal="ann", expires_at=1060.0), 60, id="a token that expires earlier"),
    ],
)
def test_sign_in_expires(identity: Identity, seconds: float) -> None:
    assert session_end(identity, now=1000.0) == 1000 + seconds


def test_failed_sign_ins_of_an_address_are_limited_and_forgotten() -> None:
    now = [0.0]
    failures = FailedSignIns(clock=lambda: now[0])
    for _ in range(MAX_FAILURES):
        assert failures.seconds_to_wait("192.0.2.1") is None
        failures.add("192.0.2.1")
    assert failures.seconds_to_wait("192.0.2.1") == WINDOW_SECONDS
    assert failures.seconds_to_wait("192.0.2.2") is None
    now[0] = WINDOW_SECONDS
    assert failures.seconds_to_wait("192.0.2.1") is None


def test_workers_print_the_same_token_and_other_daemons_another() -> None:
    keys = random_keys()
    assert printed_token(keys) == printed_token(keys)
    assert len({printed_token(), printed_token(), printed_token(random_keys())}) == 3


async def test_console_is_only_on_the_admin_listener(
    tmp_path: Path,
) -> None:
    port = free_port()
    listen = f"listen: {{console: true, admin: '127.0.0.1:{port}'}}\n"
    async with watched(tmp_path, listen + AUTH + TOOLS) as daemon:
        assert daemon.gateway.console_link == f"http://127.0.0.1:{port}/-/console/"
        browser = Browser(daemon)
        assert (await browser.get("/api/status")).status == 200  # every client of that listener is an operator
        assert (await browser.get("/api/overview")).status == 401
        cookie = await browser.sign_in(KEY)
        facts = await (await browser.get("/api/", cookie=cookie)).json()
        assert (facts["caller"]["principal"], facts["endpoint"]) == ("ann", daemon.url)
        main = (daemon.gateway.url or "").removesuffix("/mcp")
        async with daemon.http.get(f"{main}/-/console/") as response:
            assert response.status == 404
