"""Sign-in of users to services behind the gateway with the authorization code flow, and attacks on it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit, urlunsplit

import aiohttp
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gateway.errors import ConfigError
from tests.authorization_server import Key
from tests.behaviour.inside import served_over_http
from tests.e2e.daemon import serving as daemon_serving
from tests.local_server import listening
from tests.messages import BOTH, modern_headers, modern_request
from tests.sign_in_server import Provider, provider
from tests.waiting import until

SECONDS: Final = 40
ANN: Final = "key-of-ann-0123456789"
BOB: Final = "key-of-bob-0123456789"
ROOT: Final = "key-of-root-0123456789"
URL_CLIENT: Final[dict[str, Any]] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"url": {}}}}


@pytest.fixture
async def idp() -> AsyncIterator[Provider]:
    async with asyncio.timeout(SECONDS), provider() as found:
        yield found


class Served:
    """A gateway over HTTP, and browsers."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.base = url.removesuffix("/mcp")
        self.http = http
        self.admin = self.base
        """The listener of the console."""

    async def result(self, key: str | None, **params: Any) -> dict[str, Any]:
        return await self.ask(key, "tools/call", {"name": "whoami", "arguments": {}, **params})

    async def ask(self, key: str | None, method: str, params: dict[str, Any]) -> dict[str, Any]:
        name = str(params.get("taskId", params.get("name")))
        headers = {**modern_headers(method, params), "Mcp-Name": name, "Accept": BOTH}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        async with self.http.post(self.url, json=modern_request(method, params), headers=headers) as response:
            text = await response.text()
        # A slow response is an event stream.
        answer = text.rpartition("\ndata: ")[2] if response.content_type == "text/event-stream" else text
        result: dict[str, Any] = json.loads(answer)["result"]
        return result

    async def text(self, key: str | None) -> str:
        return str((await self.result(key))["content"][0]["text"])

    async def link(self, key: str | None) -> str:
        found = re.search(r"http://\S+/-/sign-in/\S+", await self.text(key))
        assert found is not None
        return found[0]

    async def sign_in(self, key: str | None, link: str | None = None) -> tuple[int, str]:
        """Follow a link in a new browser, and return the last page."""
        async with browser() as page, page.post(link or await self.link(key), data=_form(key)) as response:
            return response.status, await response.text()


def browser() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


def _form(key: str | None) -> dict[str, str]:
    return {"token": key} if key is not None else {"submit": "1"}


def file_for(idp: Provider, *, auth: bool = True, **options: Any) -> dict[str, Any]:
    keys = {"ann": {"secret": ANN}, "bob": {"secret": BOB}, "root": {"secret": ROOT, "scopes": ["gateway:admin"]}}
    code = {"issuer": idp.issuer, "scopes": ["read"], **options}
    connection = {"base_url": f"{idp.issuer}/api", "allow_private": True, "auth": {"authorization_code": code}}
    tool = {"description": "Who am I?", "http": {"connection": "api", "url": "/whoami"}}
    return {
        **({"auth": {"api_keys": keys}} if auth else {}),
        "connections": {"api": connection},
        "tools": {"whoami": tool},
    }


@asynccontextmanager
async def serving(folder: Path, file: dict[str, Any], *, secret_key: str = "k" * 40) -> AsyncIterator[Served]:
    settings = {"state_dir": str(folder / "state"), "secret_key": secret_key, "log_level": "debug"}
    async with served_over_http(folder, json.dumps(file), **settings) as (gateway, http):
        served = Served(str(gateway.url), http)
        assert gateway.app.http is not None
        served.admin = gateway.app.http.admin_url or ""
        yield served


async def test_each_user_gets_their_own_data(tmp_path: Path, idp: Provider) -> None:
    async with serving(tmp_path, file_for(idp)) as served:
        assert "requires that you sign in. Open http://" in await served.text(ANN)
        idp.user = "ann"
        status, page = await served.sign_in(ANN)
        assert (status, "You are signed in to api" in page) == (200, True)
        idp.user = "bob"
        await served.sign_in(BOB)
        assert await served.text(ANN) == "ann"
        assert await served.text(BOB) == "bob"
        assert "requires that you sign in" in await served.text(ROOT)
    assert all(asked["code_challenge_method"] == "S256" for asked in idp.asked)
    assert all(asked["scope"] == "read" for asked in idp.asked)


async def test_call_continues_after_url_elicitation(tmp_path: Path, idp: Provider) -> None:
    async with serving(tmp_path, file_for(idp)) as served:
        asked = await served.result(ANN, _meta=URL_CLIENT)
        [(key, question)] = asked["inputRequests"].items()
        assert question["params"]["mode"] == "url"
        answer = {"inputResponses": {key: {"action": "accept"}}, "requestState": asked["requestState"]}
        retry = asyncio.create_task(served.result(ANN, _meta=URL_CLIENT, **answer))
        await served.sign_in(ANN, question["params"]["url"])
        assert (await retry)["content"][0]["text"] == "ann"


async def test_declined_sign_in_is_an_error(tmp_path: Path, idp: Provider) -> None:
    async with serving(tmp_path, file_for(idp)) as served:
        asked = await served.result(ANN, _meta=URL_CLIENT)
        [key] = asked["inputRequests"]
        answer = {"inputResponses": {key: {"action": "decline"}}, "requestState": asked["requestState"]}
        result = await served.result(ANN, _meta=URL_CLIENT, **answer)
        assert result["isError"]
        assert "you declined" in result["content"][0]["text"]


async def test_link_is_rejected_for_another_person_and_stays_usable(tmp_path: Path, idp: Provider) -> None:
    async with serving(tmp_path, file_for(idp)) as served:
        link = await served.link(ANN)
        status, page = await served.sign_in(BOB, link)
        assert (status, "another user" in page) == (403, True)
        assert (await served.sign_in("no-key-of-anyone", link))[0] == 401
        async with served.http.get(link) as response:
            assert response.status == 200
            assert "type=password name=token" in await response.text()
            assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
            assert response.headers["Cache-Control"] == "no-store"
        assert not idp.asked
        assert (await served.sign_in(ANN, link))[0] == 200
        assert (await served.sign_in(ANN, link))[0] == 410
        assert (await served.sign_in(ANN, f"{served.base}/-/sign-in/{'x' * 43}"))[0] == 404


async def _callback_url(served: Served, page: aiohttp.ClientSession, link: str) -> str:
    """Start a sign-in in a browser, and return the URL that the authorization server redirects to."""
    async with page.post(link, data=_form(ANN), allow_redirects=False) as response:
        target = response.headers["Location"]
    async with page.get(target, allow_redirects=False) as response:
        return response.headers["Location"]


def _changed(url: str, **changes: str) -> str:
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()} | changes
    return urlunsplit(parts._replace(query="&".join(f"{name}={value}" for name, value in query.items())))


async def test_callback_rejects_forged_and_foreign_responses(tmp_path: Path, idp: Provider) -> None:
    async with serving(tmp_path, file_for(idp)) as served, browser() as page, browser() as other:
        url = await _callback_url(served, page, await served.link(ANN))
        state = parse_qs(urlsplit(url).query)["state"][0]
        for attacker, attack in (
            (other, url),  # a browser that did not open the link
            (page, _changed(url, state=f"{state}x")),
            (page, _changed(url, state=state.partition(".")[0])),
            (page, f"{url}&code=other"),
            (page, url.replace("/callback/connections.api?", "/callback/upstreams.evil?")),
        ):
            async with attacker.get(attack) as response:
                assert response.status == 400, attack
        assert not idp.grants
        async with page.get(url) as response:
            assert response.status == 200
        async with page.get(url) as response:
            assert response.status == 400
        assert await served.text(ANN) == "ann"


@pytest.mark.parametrize("written", ["file", "text"])
async def test_private_key_authenticates_the_gateway(tmp_path: Path, idp: Provider, written: str) -> None:
    key = Key.make()
    idp.clients["gateway"].key = key
    text = key.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    (tmp_path / "key.pem").write_text(text)
    private_key = "key.pem" if written == "file" else text
    file = file_for(idp, client_id="gateway", private_key=private_key, key_id="k1")
    async with serving(tmp_path, file) as served:
        assert (await served.sign_in(ANN))[0] == 200
        idp.access.clear()
        assert await served.text(ANN) == "ann"
    assert idp.asked[0]["client_id"] == "gateway"
    code, refresh = (form["client_assertion"] for form in idp.forms)
    assert code != refresh
    for assertion in (code, refresh):
        assert jwt.get_unverified_header(assertion)["kid"] == "k1"
        public = key.private.public_key()
        claims = jwt.decode(assertion, public, algorithms=[key.algorithm], audience=idp.issuer)
        assert claims["iss"] == claims["sub"] == "gateway"
    assert not any("client_secret" in form for form in idp.forms)


@pytest.mark.parametrize("issuer", ["https://evil.example.com", "SLASH", ""])
async def test_response_of_another_issuer_is_rejected_before_the_code_is_sent(
    tmp_path: Path, idp: Provider, issuer: str
) -> None:
    idp.response = {"iss": f"{idp.issuer}/" if issuer == "SLASH" else issuer}
    async with serving(tmp_path, file_for(idp)) as served:
        status, page = await served.sign_in(ANN)
        assert (status, "another authorization server" in page) == (400, True)
    assert not idp.grants


async def test_client_secret_is_only_sent_to_the_first_issuer(tmp_path: Path, idp: Provider) -> None:
    file = file_for(idp, client_id="gateway", client_secret="client-secret-1")
    del file["connections"]["api"]["auth"]["authorization_code"]["issuer"]
    async with provider() as evil, serving(tmp_path, file) as served:
        assert (await served.sign_in(ANN))[0] == 200
        idp.named = evil.issuer
        status, page = await served.sign_in(BOB)
        assert (status, f"now names the authorization server {evil.issuer}" in page) == (424, True)
        assert not evil.asked
        assert not evil.grants


async def test_denied_sign_in_shows_the_reason_as_text(tmp_path: Path, idp: Provider) -> None:
    idp.response = {"error": "access_denied", "error_description": "<script>alert(1)</script>"}
    async with serving(tmp_path, file_for(idp)) as served:
        status, page = await served.sign_in(ANN)
    assert status == 400
    assert "access_denied &lt;script&gt;" in page
    assert "<script" not in page


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"code_challenge_methods_supported": ["plain"]}, "does not support PKCE with S256"),
        ({"authorization_endpoint": "http://id.example.com/"}, "has no authorization endpoint with an https URL"),
        ({"registration_endpoint": None}, "does not allow clients to register"),
    ],
)
async def test_unsuitable_authorization_server_is_rejected(
    tmp_path: Path, idp: Provider, metadata: dict[str, Any], reason: str
) -> None:
    idp.metadata = metadata
    async with serving(tmp_path, file_for(idp)) as served:
        status, page = await served.sign_in(ANN)
        assert (status, reason in page) == (424, True)
    assert not idp.asked


@pytest.mark.parametrize("supported", [[], ["read", "offline_access"]])
async def test_consent_is_requested_for_refresh_tokens(tmp_path: Path, idp: Provider, supported: list[str]) -> None:
    idp.metadata = {"scopes_supported": supported}
    async with serving(tmp_path, file_for(idp)) as served:
        await served.sign_in(ANN)
    [asked] = idp.asked
    assert asked["scope"] == ("read offline_access" if supported else "read")
    assert asked.get("prompt") == ("consent" if supported else None)


async def test_expired_token_is_refreshed_once_for_all_calls(tmp_path: Path, idp: Provider) -> None:
    idp.lifetime = 1
    async with serving(tmp_path, file_for(idp)) as served:
        await served.sign_in(ANN)
        idp.lifetime = 3600
        assert set(await asyncio.gather(*(served.text(ANN) for _ in range(8)))) == {"ann"}
        assert idp.grants["refresh_token"] == 1
        assert await served.text(ANN) == "ann"
        # The next refresh uses the rotated token.
        idp.access.clear()
        assert await served.text(ANN) == "ann"
        assert idp.grants["refresh_token"] == 2


async def test_slow_refresh_counts_against_the_timeout_of_a_call_and_continues(tmp_path: Path, idp: Provider) -> None:
    idp.lifetime = 1
    file = file_for(idp)
    file["tools"]["whoami"]["timeout"] = "1s"
    async with serving(tmp_path, file) as served:
        await served.sign_in(ANN)
        idp.lifetime = 3600
        idp.free.clear()
        assert (await served.text(ANN)).startswith("Signing in timed out after ")
        idp.free.set()
        while await served.text(ANN) != "ann":
            pass
        assert idp.grants["refresh_token"] == 1


async def test_failed_refresh_keeps_tokens_unless_the_grant_is_invalid(tmp_path: Path, idp: Provider) -> None:
    async with serving(tmp_path, file_for(idp)) as served:
        await served.sign_in(ANN)
        idp.access.clear()
        idp.token_failure = (503, "temporarily_unavailable")
        text = await served.text(ANN)
        assert "503" in text
        assert "/-/sign-in/" not in text
        idp.token_failure = None
        assert await served.text(ANN) == "ann"
        idp.access.clear()
        idp.refresh.clear()
        assert "/-/sign-in/" in await served.text(ANN)


CHALLENGES: Final = {401: 'Bearer error="invalid_token"', 403: 'Bearer error="insufficient_scope", scope="everything"'}


@pytest.mark.parametrize("status", [401, 403, 302])
async def test_redirect_target_cannot_sign_a_user_out_or_ask_for_scopes(
    tmp_path: Path, idp: Provider, status: int
) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        # 302: back to the API, without the token.
        headers = {"Location": f"{idp.issuer}/api/whoami", "WWW-Authenticate": CHALLENGES.get(status, "")}
        return web.Response(status=status, headers=headers)

    elsewhere = web.Application()
    elsewhere.router.add_get("/", refuse)
    file = file_for(idp)
    file["tools"]["moved"] = {
        "description": "x",
        "http": {"connection": "api", "url": "/moved", "follow_redirects": 3, "allow_private": True},
    }
    async with listening(elsewhere) as port, serving(tmp_path, file) as served:
        idp.moved = f"http://127.0.0.1:{port}/"
        await served.sign_in(ANN)
        text = (await served.result(ANN, name="moved"))["content"][0]["text"]
        assert f"HTTP {401 if status == 302 else status}" in text
        assert not idp.grants["refresh_token"]
        assert await served.text(ANN) == "ann"
        # The response of the service itself counts.
        idp.access.clear()
        idp.refresh.clear()
        assert "/-/sign-in/" in await served.text(ANN)


async def test_tokens_survive_a_restart_encrypted_and_unseen(
    tmp_path: Path, idp: Provider, capfd: pytest.CaptureFixture[str]
) -> None:
    async with serving(tmp_path, file_for(idp)) as served:
        await served.sign_in(ANN)
        shown = [await served.text(ANN)]
        for path in ("/-/status", "/-/config", "/metrics", "/-/connections"):
            async with served.http.get(f"{served.base}{path}", headers={"Authorization": f"Bearer {ROOT}"}) as response:
                shown.append(await response.text())
    async with serving(tmp_path, file_for(idp)) as served:
        assert await served.text(ANN) == "ann"
    async with serving(tmp_path, file_for(idp), secret_key="another" * 8) as served:
        assert "/-/sign-in/" in await served.text(ANN)
    captured = capfd.readouterr()
    stored = b"".join(file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file())
    everything = f"{shown}{captured.out}{captured.err}".encode() + stored
    assert idp.issued
    for secret in idp.issued:
        assert secret.encode() not in everything


async def test_sign_out_revokes_tokens_of_this_person_only(tmp_path: Path, idp: Provider) -> None:
    async with serving(tmp_path, file_for(idp)) as served, browser() as page:
        for idp.user, key in (("ann", ANN), ("bob", BOB)):
            await served.sign_in(key)
        connections = f"{served.base}/-/connections"
        async with page.post(connections, data=_form(ANN)) as response:
            assert "signed in since" in await response.text()
        form = {"entry": "connections.api", "action": "sign_out"}
        async with page.post(connections, data=form, headers={"Origin": "http://127.0.0.1:1"}) as response:
            assert response.status == 403  # a page of another origin
        assert not idp.revoked
        async with page.post(connections, data=form, headers={"Origin": served.base}) as response:
            assert "not signed in" in await response.text()
        assert [token[:3] for token in idp.revoked] == ["rt-"]
        assert "/-/sign-in/" in await served.text(ANN)
        assert await served.text(BOB) == "bob"


@pytest.mark.parametrize(("field", "status"), [("x=1", 200), (f"x={'1' * 100_000}", 415)])
async def test_form_is_read_to_its_end(tmp_path: Path, idp: Provider, field: str, status: int) -> None:
    async def form() -> AsyncIterator[bytes]:
        yield f"{field}&token=".encode()
        await asyncio.sleep(0.05)
        yield ANN.encode()

    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    async with (
        serving(tmp_path, file_for(idp)) as served,
        served.http.post(f"{served.base}/-/connections", data=form(), headers=headers) as response,
    ):
        assert (response.status, "not signed in" in await response.text()) == (status, status == 200)


async def test_removed_entry_revokes_its_tokens(tmp_path: Path, idp: Provider) -> None:
    config = tmp_path / "config.yaml"
    async with served_over_http(tmp_path, json.dumps(file_for(idp))) as (gateway, http):
        served = Served(str(gateway.url), http)
        await served.sign_in(ANN)
        config.write_text(
            json.dumps(
                {"tools": {"x": {"shell": {"command": ["true"]}, "description": "x"}}, "auth": file_for(idp)["auth"]}
            )
        )
        await gateway.app.reloads.reload()
        for _ in range(200):
            if idp.revoked:
                break
            await asyncio.sleep(0.02)
        assert [token[:3] for token in idp.revoked] == ["rt-"]


async def test_shared_account_is_signed_in_by_an_operator_for_everyone(tmp_path: Path, idp: Provider) -> None:
    async with serving(tmp_path, file_for(idp, shared=True)) as served:
        text = await served.text(ANN)
        assert "administrator" in text
        assert "/-/sign-in/" not in text
        idp.user = "robot"
        await served.sign_in(ROOT)
        assert await served.text(ANN) == await served.text(BOB) == "robot"


async def test_only_local_clients_can_sign_in_without_auth(tmp_path: Path, idp: Provider) -> None:
    async with serving(tmp_path, file_for(idp, auth=False)) as served:
        link = await served.link(None)
        for headers in ({"X-Forwarded-For": "203.0.113.1"}, {"Via": "1.1 proxy"}, {"Host": "evil.example.com"}):
            async with served.http.get(link, headers=headers) as response:
                assert 400 <= response.status < 500
        assert (await served.sign_in(None, link))[0] == 200
        assert await served.text(None) == "ann"


async def test_tokens_survive_a_killed_daemon(tmp_path: Path, idp: Provider) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(file_for(idp)))
    flags = ("--http", "127.0.0.1:0", "--state-dir", str(tmp_path / "state"))
    async with daemon_serving(config, *flags) as daemon, aiohttp.ClientSession() as http:
        served = Served(await daemon.url(), http)
        assert (await served.sign_in(ANN))[0] == 200
        daemon.process.kill()
        await daemon.process.wait()
    async with daemon_serving(config, *flags) as daemon, aiohttp.ClientSession() as http:
        assert await Served(await daemon.url(), http).text(ANN) == "ann"


async def test_restarted_task_of_a_proxied_client_has_no_tokens_of_the_local_user(
    tmp_path: Path, idp: Provider
) -> None:
    file = file_for(idp, auth=False)
    is_held = tmp_path / "is-held"
    whoami = file["tools"]["whoami"]
    file["tools"]["later"] = {**whoami, "task": {"mode": "required", "restart": 1}, "annotations": {"idempotent": True}}
    file["tools"]["hold"] = {"description": "Hold.", "shell": {"script": f"touch {is_held}; sleep 600"}}
    file["limits"] = {"concurrency": {"per_caller": 1}}
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(file))
    flags = ("--http", "127.0.0.1:0", "--state-dir", str(tmp_path / "state"))
    capabilities: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    asked = {"_meta": {"io.modelcontextprotocol/clientCapabilities": capabilities}}
    tasks: dict[str, str] = {}
    async with daemon_serving(config, *flags) as daemon, aiohttp.ClientSession() as http:
        served = Served(await daemon.url(), http)
        assert (await served.sign_in(None))[0] == 200
        holding = asyncio.create_task(served.result(None, name="hold"))
        await until(is_held.exists)  # further calls wait for the permit
        for proxy in ("", "1.1 proxy"):
            http.headers.update({"Via": proxy} if proxy else {})
            tasks[proxy] = (await served.result(None, name="later", **asked))["taskId"]
        daemon.process.kill()
        await daemon.process.wait()
        await asyncio.gather(holding, return_exceptions=True)
    async with daemon_serving(config, *flags) as daemon, aiohttp.ClientSession() as http:
        served = Served(await daemon.url(), http)

        async def text(task_id: str) -> str:
            while (found := await served.ask(None, "tasks/get", {"taskId": task_id, **asked}))["status"] == "working":
                await asyncio.sleep(0.05)
            return str(found["result"]["content"][0]["text"])

        assert await text(tasks[""]) == "ann"
        assert "does not identify its users" in await text(tasks["1.1 proxy"])


async def test_client_metadata_document_is_served(tmp_path: Path, idp: Provider) -> None:
    async with serving(tmp_path, file_for(idp)) as served:
        url = f"{served.base}/.well-known/oauth-client/api.json"
        async with served.http.get(url) as response:
            document = await response.json()
        assert (response.status, document["client_id"]) == (200, url)
        assert document["redirect_uris"] == [f"{served.base}/-/sign-in/callback/connections.api"]
        assert document["token_endpoint_auth_method"] == "none"
        async with served.http.get(url.replace("api.json", "other.json")) as response:
            assert response.status == 404


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"client_secret": "x"}, "`client_secret` requires `client_id`"),
        ({"private_key": "key.pem"}, "`private_key` requires `client_id`"),
        ({"client_id": "x", "key_id": "k"}, "`key_id` requires `private_key`"),
        ({"token_url": "https://x.example.com"}, "unknown key"),
    ],
)
async def test_contradictory_keys_are_an_error(
    tmp_path: Path, idp: Provider, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        async with serving(tmp_path, file_for(idp, **options)):
            pass
