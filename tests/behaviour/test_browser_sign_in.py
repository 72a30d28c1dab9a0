"""Sign-in to the pages with OpenID Connect, and attacks on it."""

import asyncio
import json
import re
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
from aiohttp import web

from tests.authorization_server import JWKS, METADATA, AuthorizationServer, Key, challenge_of
from tests.behaviour.test_user_sign_in import ANN, Served, browser, serving
from tests.local_server import listening

SECONDS: Final = 40
CLIENT: Final = "gateway-pages"


class OpenIdProvider(AuthorizationServer):
    """An issuer that approves every request."""

    def __init__(self) -> None:
        super().__init__(keys=[Key.make()])
        self.claims: dict[str, Any] = {}
        self.response: dict[str, str] = {}
        self.requests: list[dict[str, str]] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.signing_key: Key | None = None
        self.answer: dict[str, Any] = {"access_token": "opaque", "scope": "openid"}
        """The token response, except the ID token."""

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get(METADATA, self._metadata)
        application.router.add_get(JWKS, self._keys)
        application.router.add_get("/authorize", self._approve)
        application.router.add_post("/token", self._issue)
        return application

    async def _approve(self, request: web.Request) -> web.Response:
        asked = {name: str(value) for name, value in request.query.items()}
        self.requests.append(asked)
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        answer = {"code": code, "state": asked["state"], "iss": self.issuer, **self.response}
        raise web.HTTPFound(f"{asked['redirect_uri']}?{urlencode(answer)}")

    async def _issue(self, request: web.Request) -> web.Response:
        form = await request.post()
        asked = self.codes.pop(str(form["code"]))
        assert challenge_of(str(form["code_verifier"])) == asked["code_challenge"]
        assert form["redirect_uri"] == asked["redirect_uri"]
        now = int(time.time())
        claims: dict[str, Any] = {"iss": self.issuer, "sub": self.subject, "aud": CLIENT, "nonce": asked["nonce"]}
        claims |= {"iat": now, "exp": now + 300, **self.claims}
        id_token = self.sign(claims, key=self.signing_key)
        return web.json_response({"token_type": "Bearer", "id_token": id_token, **self.answer})


@pytest.fixture
async def idp() -> AsyncIterator[OpenIdProvider]:
    server = OpenIdProvider()
    async with asyncio.timeout(SECONDS), listening(server.application()) as port:
        server.issuer = f"http://127.0.0.1:{port}"
        yield server


def file_for(idp: OpenIdProvider, **changes: Any) -> dict[str, Any]:
    entry = {
        "issuer": idp.issuer,
        "audience": "api://gateway",
        "browser": {"client_id": CLIENT},
        "roles": {"scopes": {"admins": ["gateway:admin"]}},
        **changes,
    }
    code = {"issuer": "https://auth.example.com", "client_id": "x"}
    connection = {"base_url": "https://api.example.com", "auth": {"authorization_code": code}}
    return {
        "auth": {"oauth": entry, "api_keys": {"ann": {"secret": ANN}}},
        "listen": {"console": True},
        "connections": {"api": connection},
        "tools": {"hello": {"description": "Hello.", "content": "hi"}},
    }


async def start(
    served: Served, page: aiohttp.ClientSession, idp: OpenIdProvider, *, back: str = "connections", **headers: str
) -> aiohttp.ClientResponse:
    """Submit the sign-in form."""
    form = {"issuer": idp.issuer, "back": back}
    return await page.post(
        f"{served.base}/-/sign-in/browser", data=form, headers={"Origin": served.base, **headers}, allow_redirects=False
    )


async def callback_url(served: Served, page: aiohttp.ClientSession, idp: OpenIdProvider) -> str:
    response = await start(served, page, idp)
    assert response.status == 303
    async with page.get(response.headers["Location"], allow_redirects=False) as approved:
        return approved.headers["Location"]


async def test_user_signs_in_with_the_scopes_of_their_roles(tmp_path: Path, idp: OpenIdProvider) -> None:
    idp.claims = {"groups": ["admins"]}
    async with serving(tmp_path, file_for(idp)) as served, browser() as page:
        connections = f"{served.base}/-/connections"
        async with page.get(connections) as response:
            text = await response.text()
            assert "Sign in with 127.0.0.1" in text
            assert "type=password" in text
        url = await callback_url(served, page, idp)
        asked = idp.requests[-1]
        assert (asked["code_challenge_method"], asked["scope"]) == ("S256", "openid")
        assert asked["redirect_uri"] == f"{served.base}/-/sign-in/browser/callback"
        async with page.get(url) as response:
            text = await response.text()
            assert (response.status, "url=/-/connections" in text) == (200, True)
            assert response.headers["Cache-Control"] == "no-store"
        async with page.get(connections) as response:
            text = await response.text()
            assert "connections.api" in text
            assert "people: 0" in text  # only holders of gateway:admin see it
        async with page.get(f"{served.base}/-/api/status") as response:
            assert response.status == 200


async def test_user_without_roles_is_no_operator(tmp_path: Path, idp: OpenIdProvider) -> None:
    async with serving(tmp_path, file_for(idp)) as served, browser() as page:
        async with page.get(await callback_url(served, page, idp)) as response:
            assert response.status == 200
        async with page.get(f"{served.base}/-/connections") as response:
            assert "people" not in await response.text()
        async with page.get(f"{served.base}/-/api/status") as response:
            assert response.status == 403


async def status_of(served: Served, page: aiohttp.ClientSession, path: str) -> int:
    async with page.get(f"{served.admin}{path}") as response:
        return response.status


@pytest.mark.parametrize(
    ("scope", "claims", "status"),
    [
        (None, {}, 403),
        ("openid", {}, 403),
        ("openid gateway:admin", {}, 200),
        (None, {"scope": "gateway:admin"}, 200),
        (None, {"groups": ["admins"]}, 200),
    ],
)
async def test_scopes_that_the_response_omits_are_not_granted(
    tmp_path: Path, idp: OpenIdProvider, scope: str | None, claims: dict[str, Any], status: int
) -> None:
    idp.claims, idp.answer = claims, {"access_token": "opaque", **({} if scope is None else {"scope": scope})}
    file = file_for(idp, scopes_supported=["gateway:admin"])
    async with serving(tmp_path, file) as served, browser() as page:
        async with page.get(await callback_url(served, page, idp)) as response:
            assert response.status == 200
        assert idp.requests[-1]["scope"] == "openid gateway:admin"
        assert await status_of(served, page, "/-/api/status") == status


@pytest.mark.parametrize(("granted", "status"), [("other", 403), ("read", 200)])
async def test_refused_access_token_is_not_replaced_by_the_id_token(
    tmp_path: Path, idp: OpenIdProvider, granted: str, status: int
) -> None:
    token = idp.token("api://gateway", scope=granted)
    idp.answer = {"access_token": token, "scope": "openid read"}
    async with serving(tmp_path, file_for(idp, required_scopes=["read"])) as served, browser() as page:
        async with page.get(await callback_url(served, page, idp)) as response:
            assert response.status == status
        async with page.get(f"{served.base}/-/connections") as response:
            assert ("type=password" in await response.text()) == (status == 403)


@pytest.mark.parametrize(("path", "status"), [("/support", 403), ("", 200)])
async def test_token_of_a_view_is_rejected_on_the_pages(
    tmp_path: Path, idp: OpenIdProvider, path: str, status: int
) -> None:
    file = {**file_for(idp), "views": {"support": {"include": {"tools": ["hello"]}}}}
    del file["auth"]["oauth"]["audience"]
    async with serving(tmp_path, file) as served, browser() as page:
        connections = f"{served.base}/-/connections"
        token = idp.token(f"{served.url}{path}")
        async with page.get(connections, headers={"Authorization": f"Bearer {token}"}) as response:
            assert response.status == status
        async with page.post(connections, data={"token": token}) as response:
            assert response.status == status
        idp.answer = {"access_token": token, "scope": "openid"}
        async with page.get(await callback_url(served, page, idp)) as response:
            assert response.status == status


async def test_console_on_its_own_listener_signs_users_in(tmp_path: Path, idp: OpenIdProvider) -> None:
    idp.claims = {"groups": ["admins"]}
    file = file_for(idp)
    file["listen"] |= {"admin": "127.0.0.1:0", "public_url": "http://localhost:1"}
    async with serving(tmp_path, file) as served, browser() as page:
        assert served.admin != served.base
        assert await status_of(served, page, "/-/api/overview") == 401
        async with page.get(f"{served.admin}/-/sign-in/browser?back=console/") as response:
            assert "Sign in with 127.0.0.1" in await response.text()
        form = {"issuer": idp.issuer, "back": "console/"}
        for origin, status in (("https://evil.example.com", 403), (served.admin, 200)):
            headers = {"Origin": origin}
            async with page.post(f"{served.admin}/-/sign-in/browser", data=form, headers=headers) as response:
                assert response.status == status
        assert idp.requests[-1]["redirect_uri"] == f"{served.admin}/-/sign-in/browser/callback"
        assert await status_of(served, page, "/-/api/overview") == 200
        assert await status_of(served, page, "/-/connections") == 404


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "other"},
        {"nonce": None},
        {"aud": "another-client"},
        {"aud": [CLIENT, "another-client"]},
        {"aud": [CLIENT, "another-client"], "azp": "another-client"},
        {"iss": "https://evil.example.com"},
        {"exp": 1},
    ],
)
async def test_wrong_id_token_is_rejected(tmp_path: Path, idp: OpenIdProvider, claims: dict[str, Any]) -> None:
    idp.claims = claims
    async with serving(tmp_path, file_for(idp)) as served, browser() as page:
        async with page.get(await callback_url(served, page, idp)) as response:
            assert (response.status, "Sign-in failed" in await response.text()) == (401, True)
        async with page.get(f"{served.base}/-/connections") as response:
            assert "type=password" in await response.text()


async def test_id_token_of_another_key_is_rejected(tmp_path: Path, idp: OpenIdProvider) -> None:
    idp.signing_key = Key.make(kid=idp.keys[0].kid)
    async with serving(tmp_path, file_for(idp)) as served, browser() as page:
        response = await page.get(await callback_url(served, page, idp))
        assert response.status == 401


async def test_forged_and_foreign_responses_are_rejected(tmp_path: Path, idp: OpenIdProvider) -> None:
    async with serving(tmp_path, file_for(idp)) as served, browser() as page, browser() as other:
        url = await callback_url(served, page, idp)
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        callback = url.partition("?")[0]
        for attacker, attack in (
            (other, url),  # login CSRF: a browser that did not start the sign-in
            (page, f"{callback}?{urlencode({**query, 'state': 'forged'})}"),
            (page, f"{callback}?code={query['code']}"),
            (page, f"{url}&code=other"),
        ):
            async with attacker.get(attack) as response:
                assert response.status == 400, attack
        assert len(idp.codes) == 1  # the code was not sent
        async with page.get(url) as response:
            assert response.status == 200
        async with page.get(url) as response:
            assert response.status == 400


@pytest.mark.parametrize("issuer", ["https://evil.example.com", ""])
async def test_response_of_another_issuer_is_rejected_before_the_code_is_sent(
    tmp_path: Path, idp: OpenIdProvider, issuer: str
) -> None:
    idp.response = {"iss": issuer}
    async with serving(tmp_path, file_for(idp)) as served, browser() as page:
        response = await page.get(await callback_url(served, page, idp))
        assert (response.status, "another authorization server" in await response.text()) == (400, True)
    assert len(idp.codes) == 1


@pytest.mark.parametrize(
    "back",
    ["https://evil.example.com/", "//evil.example.com", "../mcp", "connections?x='>", "sign-in/x", "console/../x"],
)
async def test_sign_in_only_redirects_to_own_pages(tmp_path: Path, idp: OpenIdProvider, back: str) -> None:
    async with serving(tmp_path, file_for(idp)) as served, browser() as page:
        assert 400 <= (await start(served, page, idp, back=back)).status < 500
        assert (await start(served, page, idp, back="console/")).status == 303


async def test_form_of_another_origin_and_unknown_issuer_are_rejected(tmp_path: Path, idp: OpenIdProvider) -> None:
    async with serving(tmp_path, file_for(idp)) as served, browser() as page:
        assert (await start(served, page, idp, Origin="https://evil.example.com")).status == 403
        form = {"issuer": "https://evil.example.com", "back": "connections"}
        async with page.post(f"{served.base}/-/sign-in/browser", data=form) as response:
            assert response.status == 424
    assert not idp.requests


async def test_link_for_another_person_is_rejected(tmp_path: Path, idp: OpenIdProvider) -> None:
    async with serving(tmp_path, file_for(idp)) as served, browser() as page:
        form = {"entry": "connections.api", "action": "sign_in", "token": ANN}
        async with page.post(
            f"{served.base}/-/connections", data=form, headers={"Accept": "application/json"}
        ) as response:
            link = (await response.json())["link"]
        async with page.get(await callback_url(served, page, idp)) as response:
            assert response.status == 200
        async with page.get(link) as response:
            assert (response.status, "another user" in await response.text()) == (403, True)


async def test_page_asks_for_a_key_without_browser_sign_in(tmp_path: Path, idp: OpenIdProvider) -> None:
    file = file_for(idp)
    del file["auth"]["oauth"]
    async with serving(tmp_path, file) as served, browser() as page:
        async with page.get(f"{served.base}/-/connections") as response:
            text = await response.text()
            assert "type=password" in text
            assert re.search("Sign in with", text) is None
        async with page.get(f"{served.base}/-/sign-in/browser", headers={"Accept": "application/json"}) as response:
            assert json.loads(await response.text()) == {"issuers": []}
