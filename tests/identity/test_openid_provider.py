"""Sign-ins with a certified OpenID Provider: PKCE, rotation, revocation, DPoP, introspection and browser sessions."""

import asyncio
import base64
import hashlib
import json
import os
import re
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm

from tests.behaviour.test_user_sign_in import ANN, BOB, Served, serving
from tests.e2e.daemon import call, text_of
from tests.e2e.daemon import serving as daemon_serving
from tests.fork_server import FORKED
from tests.identity.browser import Browser, Page
from tests.identity.openid_provider import JWT, OPAQUE, SECRET, OpenIdProvider
from tests.messages import BOTH, modern_headers, modern_request

pytestmark = pytest.mark.build

PROJECT: Final = Path(__file__).parents[2]
SECONDS: Final = 120
KEYS: Final = {"ann": {"secret": ANN}, "bob": {"secret": BOB}}
WHOAMI: Final = {"description": "Who am I?", "content": "{{ caller.subject }}: {{ caller.scopes | join(' ') }}"}


def profile(issuer: str, **options: Any) -> dict[str, Any]:
    """An API of the provider, which returns the claims of the user."""
    code = {"issuer": issuer, "client_id": "gateway", "client_secret": SECRET, "scopes": ["openid"], **options}
    return {
        "connections": {"profile": {"base_url": issuer, "allow_private": True, "auth": {"authorization_code": code}}},
        "tools": {"profile": {"description": "My profile.", "http": {"connection": "profile", "url": "/me"}}},
    }


def upstream(url: str, **options: Any) -> dict[str, Any]:
    entry = {"url": url, "allow_private": True, "auth": {"authorization_code": options}}
    return {"upstreams": {"notes": entry}}


def file_with(*parts: Mapping[str, Any]) -> dict[str, Any]:
    file: dict[str, Any] = {"auth": {"api_keys": KEYS}}
    for part in parts:
        file |= part
    return file


async def text(served: Served, key: str, tool: str) -> str:
    return str((await result(served, key, tool))["content"][0]["text"])


async def result(served: Served, key: str, tool: str) -> dict[str, Any]:
    """Return the result of a call. Long calls are answered with an event stream."""
    params = {"name": tool, "arguments": {}}
    headers = {**modern_headers("tools/call", params), "Accept": BOTH, "Authorization": f"Bearer {key}"}
    async with served.http.post(served.url, json=modern_request("tools/call", params), headers=headers) as response:
        message = (await response.text()).rpartition("data: ")[2]
    assert '"result"' in message, message
    found: dict[str, Any] = json.loads(message)["result"]
    return found


async def sign_in(served: Served, key: str, user: str, tool: str, **options: Any) -> Page:
    """Call a tool, and follow its link in a new browser."""
    found = re.search(r"https?://\S+/-/sign-in/[\w-]+", await text(served, key, tool))
    assert found is not None
    return await asyncio.to_thread(Browser(user, key=key, **options).visit, found[0])


async def until_listed(served: Served, key: str, tool: str, *, requests: int = 1) -> None:
    """Wait until a tool is listed, in the responses to several concurrent requests."""
    headers = {**modern_headers("tools/list", {}), "Accept": BOTH, "Authorization": f"Bearer {key}"}

    async def is_listed() -> bool:
        async with served.http.post(served.url, json=modern_request("tools/list"), headers=headers) as response:
            return f'"{tool}"' in await response.text()

    async with asyncio.timeout(SECONDS):
        while not all(await asyncio.gather(*(is_listed() for _ in range(requests)))):
            await asyncio.sleep(0.05)


async def test_registered_client_signs_a_user_in_to_an_upstream(
    tmp_path: Path, openid: OpenIdProvider, notes: str
) -> None:
    async with serving(tmp_path, file_with(upstream(notes))) as served:
        page = await sign_in(served, ANN, "ann", "notes_sign_in")
        assert (page.status, "You are signed in to notes" in page.text) == (200, True), page.text
        await until_listed(served, ANN, "notes_whoami")
        assert await text(served, ANN, "notes_whoami") == "ann at the MCP server"
        assert "/-/sign-in/" in await text(served, BOB, "notes_whoami")
        await sign_in(served, BOB, "bob", "notes_whoami")
        assert await text(served, BOB, "notes_whoami") == "bob at the MCP server"
        assert await text(served, ANN, "notes_whoami") == "ann at the MCP server"
    [registration] = await openid.requests("/reg")
    assert registration["status"] == 201
    asked = await openid.requests("/auth")
    assert len(asked) == 2
    for each in asked:
        assert each["parameters"]["code_challenge_method"] == "S256"
        assert each["parameters"]["resource"] == notes
    exchanged = await openid.requests("/token", grant_type="authorization_code")
    assert [each["status"] for each in exchanged] == [200, 200]
    assert all(each["parameters"]["code_verifier"] for each in exchanged)


async def test_configured_client_signs_a_user_in_to_a_connection(tmp_path: Path, openid: OpenIdProvider) -> None:
    async with serving(tmp_path, file_with(profile(openid.issuer))) as served:
        page = await sign_in(served, ANN, "ann", "profile")
        assert (page.status, "You are signed in to profile" in page.text) == (200, True), page.text
        assert '"ann"' in await text(served, ANN, "profile")
    assert not await openid.requests("/reg")
    [exchange] = await openid.requests("/token")
    assert exchange["authorization"].startswith("Basic ")


async def test_refresh_tokens_rotate_and_are_revoked_on_sign_out(
    tmp_path: Path, openid: OpenIdProvider, notes: str
) -> None:
    async with serving(tmp_path, file_with(upstream(notes))) as served:
        await sign_in(served, ANN, "ann", "notes_sign_in")
        await until_listed(served, ANN, "notes_whoami")
        # The provider forgets the access token, so that the server returns 401.
        for count in (1, 2):
            last = (await openid.requests("/token"))[-1]["body"]
            await openid.configure(forgotten=[last["access_token"]])
            said = await asyncio.gather(*(text(served, ANN, "notes_whoami") for _ in range(8)))
            assert set(said) == {"ann at the MCP server"}
            refreshes = await openid.requests("/token", grant_type="refresh_token")
            assert len(refreshes) == count
            assert refreshes[-1]["parameters"]["refresh_token"] == last["refresh_token"]
            assert refreshes[-1]["body"]["refresh_token"] != last["refresh_token"]
        second = refreshes[-1]

        form = {"entry": "upstreams.notes", "action": "sign_out", "token": ANN}
        async with served.http.post(f"{served.base}/-/connections", data=form) as response:
            assert response.status == 200
        [revocation] = await openid.requests("/token/revocation")
        assert revocation["status"] == 200
        assert revocation["parameters"]["token"] == second["body"]["refresh_token"]
        assert "/-/sign-in/" in await text(served, ANN, "notes_whoami")
    # The provider accepts neither token any more.
    for token in (second["body"]["refresh_token"], second["body"]["access_token"]):
        form = {"token": token, "client_id": "resource-server", "client_secret": SECRET}
        async with openid.http.post(f"{openid.issuer}/token/introspection", data=form) as response:
            assert await response.json() == {"active": False}


@pytest.mark.parametrize("nonces", [False, True], ids=["", "nonces"])
async def test_tokens_for_a_server_that_requires_dpop_are_bound(
    tmp_path: Path, openid: OpenIdProvider, *, nonces: bool
) -> None:
    await openid.configure(accessTokenSeconds=5, requiresNonce=nonces)
    introspection = {"client_id": "resource-server", "client_secret": SECRET}
    entry = {"issuer": openid.issuer, "introspection": introspection, "dpop": "required", "scopes_supported": ["read"]}
    protected = {"auth": {"oauth": entry}, "tools": {"whoami": WHOAMI}}
    for name in ("upstream", "gateway"):
        (tmp_path / name).mkdir()
    async with (
        serving(tmp_path / "upstream", protected) as server,
        serving(tmp_path / "gateway", file_with(upstream(server.url))) as served,
    ):
        page = await sign_in(served, ANN, "ann", "notes_sign_in")
        assert page.status == 200, page.text
        await openid.configure(requiresNonce=nonces)
        await until_listed(served, ANN, "notes_whoami")
        assert await text(served, ANN, "notes_whoami") == "ann: read"
        # Both the first token and the refreshed one are bound. With nonces, the first request is rejected.
        issued = [each["body"] for each in await openid.requests("/token") if each["status"] == 200]
        assert [each["token_type"] for each in issued] == ["DPoP", "DPoP"]
        errors = {each["body"]["error"] for each in await openid.requests("/token") if each["status"] == 400}
        assert errors == ({"use_dpop_nonce"} if nonces else set())
        # The token does not work without its key.
        headers = {**modern_headers("tools/call", {"name": "whoami"}), "Accept": BOTH}
        headers["Authorization"] = f"Bearer {issued[-1]['access_token']}"
        body = modern_request("tools/call", {"name": "whoami"})
        async with server.http.post(server.url, json=body, headers=headers) as response:
            assert (response.status, "bound to a key" in await response.text()) == (401, True)


async def test_tokens_for_other_servers_are_not_bound(tmp_path: Path, openid: OpenIdProvider, notes: str) -> None:
    """The provider supports DPoP, and the server does not."""
    async with serving(tmp_path, file_with(upstream(notes))) as served:
        await sign_in(served, ANN, "ann", "notes_sign_in")
    [exchange] = await openid.requests("/token")
    assert exchange["body"]["token_type"] == "Bearer"


def proof(key: Any, method: str, url: str, *, token: str | None = None, nonce: str | None = None) -> str:
    claims = {"jti": secrets.token_hex(8), "htm": method, "htu": url, "iat": int(time.time())}
    if token is not None:
        claims["ath"] = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).decode().rstrip("=")
    if nonce is not None:
        claims["nonce"] = nonce
    public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return jwt.encode(claims, key, algorithm="ES256", headers={"typ": "dpop+jwt", "jwk": public})


def caller_file(issuer: str) -> dict[str, Any]:
    introspection = {"client_id": "resource-server", "client_secret": SECRET}
    entry = {"issuer": issuer, "audience": [JWT, OPAQUE], "introspection": introspection}
    return {"auth": {"oauth": entry}, "tools": {"whoami": WHOAMI}}


@pytest.mark.parametrize("resource", [JWT, OPAQUE])
async def test_access_tokens_identify_callers(tmp_path: Path, openid: OpenIdProvider, resource: str) -> None:
    token = await openid.token("ann", resource)
    elsewhere = await openid.token("ann", resource.replace("gateway", "elsewhere"))
    async with serving(tmp_path, caller_file(openid.issuer)) as served:
        assert await text(served, token, "whoami") == "ann: tools.use"
        assert await text(served, token, "whoami") == "ann: tools.use"
        for wrong in (elsewhere, f"{token}x"):
            headers = {**modern_headers("tools/call", {"name": "whoami"}), "Accept": BOTH}
            headers["Authorization"] = f"Bearer {wrong}"
            body = modern_request("tools/call", {"name": "whoami"})
            async with served.http.post(served.url, json=body, headers=headers) as response:
                assert response.status == 401
    asked = await openid.requests("/token/introspection", token=token)
    assert len(asked) == (1 if resource == OPAQUE else 0)


@pytest.mark.parametrize("resource", [JWT, OPAQUE])
async def test_bound_access_tokens_require_a_proof(tmp_path: Path, openid: OpenIdProvider, resource: str) -> None:
    key = generate_private_key(SECP256R1())
    token = await openid.token("ann", resource, headers={"DPoP": proof(key, "POST", f"{openid.issuer}/token")})
    body = modern_request("tools/call", {"name": "whoami"})
    plain = {**modern_headers("tools/call", {"name": "whoami"}), "Accept": BOTH, "Authorization": f"DPoP {token}"}
    async with serving(tmp_path, caller_file(openid.issuer)) as served:
        first = {**plain, "DPoP": proof(key, "POST", served.url, token=token)}
        async with served.http.post(served.url, json=body, headers=first) as response:
            assert response.status == 401
            nonce = response.headers["DPoP-Nonce"]
        stolen = proof(generate_private_key(SECP256R1()), "POST", served.url, token=token, nonce=nonce)
        async with served.http.post(served.url, json=body, headers={**plain, "DPoP": stolen}) as response:
            assert response.status == 401
        own = {**plain, "DPoP": proof(key, "POST", served.url, token=token, nonce=nonce)}
        async with served.http.post(served.url, json=body, headers=own) as response:
            assert (await response.json())["result"]["content"][0]["text"] == "ann: tools.use"


async def test_client_metadata_document_replaces_registration(
    tmp_path: Path, openid: OpenIdProvider, notes: str
) -> None:
    public = "https://gateway.example.com"
    file = file_with(upstream(notes), {"listen": {"public_url": public}})
    async with serving(tmp_path, file) as served:
        await openid.configure(origins={public: served.base})
        page = await sign_in(served, ANN, "ann", "notes_sign_in", origins={public: served.base})
        assert (page.status, "You are signed in to notes" in page.text) == (200, True), page.text
        await until_listed(served, ANN, "notes_whoami")
        assert await text(served, ANN, "notes_whoami") == "ann at the MCP server"
    assert not await openid.requests("/reg")
    [exchange] = await openid.requests("/token")
    assert exchange["parameters"]["client_id"] == f"{public}/.well-known/oauth-client/notes.json"


async def test_command_signs_in_for_a_server_on_stdio(tmp_path: Path, openid: OpenIdProvider, notes: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(upstream(notes)))
    script = "import sys; from tests.identity.browser import Browser; Browser('ann').visit(sys.argv[1])"
    (tmp_path / "browser.py").write_text(f"import sys; sys.path.insert(0, {str(PROJECT)!r})\n{script}")
    command = [FORKED, "connections", "sign-in", str(config), "notes"]
    environment = {
        **os.environ,
        "MCP_GATEWAY_STATE_DIR": str(tmp_path / "state"),
        "BROWSER": f"{sys.executable} {tmp_path / 'browser.py'} %s",
    }
    async with asyncio.timeout(SECONDS):
        process = await asyncio.create_subprocess_exec(*command, env=environment)
        assert await process.wait() == 0
        async with daemon_serving(config, "--stdio", "--state-dir", str(tmp_path / "state")) as daemon:
            while "Unknown tool" in str(answer := await daemon.ask(call("notes_whoami"))):
                await asyncio.sleep(0.05)
            assert text_of(answer) == "ann at the MCP server"
    [asked] = await openid.requests("/auth")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/sign-in/upstreams\.notes", asked["parameters"]["redirect_uri"])


async def test_users_sign_in_to_the_pages(tmp_path: Path, openid: OpenIdProvider) -> None:
    entry = {
        "issuer": openid.issuer,
        "audience": OPAQUE,
        "browser": {"client_id": "gateway", "client_secret": SECRET},
        "roles": {"scopes": {"platform-admins": ["gateway:admin"]}},
    }
    file = {**profile(openid.issuer), "auth": {"oauth": entry}, "listen": {"console": True}}
    async with serving(tmp_path, file) as served:
        for user, status in (("ann", 403), ("root", 200)):
            browser = Browser(user)
            page = await asyncio.to_thread(browser.visit, f"{served.base}/-/connections")
            assert (page.status, "connections.profile" in page.text) == (200, True), page.text
            assert ("people: " in page.text) == (user == "root")
            page = await asyncio.to_thread(browser.open, f"{served.base}/-/api/status")
            assert page.status == status
            # From the page, the person signs in to a service without another link.
            if user == "ann":
                page = await asyncio.to_thread(browser.open, f"{served.base}/-/connections")
                [form] = page.forms
                page = await asyncio.to_thread(browser.submit, page, form)
                page = await asyncio.to_thread(browser.finish, page)
                assert "You are signed in to profile" in page.text, page.text
                page = await asyncio.to_thread(browser.open, f"{served.base}/-/connections")
                assert "signed in since" in page.text
    [asked, *_] = await openid.requests("/auth")
    assert parse_qs(urlsplit(asked["location"]).query) is not None
    assert asked["parameters"]["nonce"]
