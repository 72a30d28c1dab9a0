"""`auth` of a connection: requests to the service and the authorization server, and errors for the caller."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gateway.app.gateway import Gateway
from gateway.errors import ConfigError
from tests.authorization_server import Key
from tests.behaviour.inside import Client, product, served_over_http
from tests.messages import BOTH, modern_headers, modern_request
from tests.token_server import (
    ACCESS_TOKEN,
    EXCHANGE,
    ID_JAG,
    JWT_BEARER,
    SECRET,
    ProofChecker,
    RegisteredClient,
    Service,
    TokenServer,
    protected_service,
    token_server,
)

SECONDS: Final = 20
API_KEY: Final = "key-of-ci-0123456789"


@pytest.fixture
async def server() -> AsyncIterator[TokenServer]:
    async with asyncio.timeout(SECONDS), token_server() as server:
        yield server


@pytest.fixture
async def service(server: TokenServer) -> AsyncIterator[Service]:
    async with protected_service(server) as service:
        yield service


def pem(key: Key) -> str:
    private = key.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert isinstance(private, bytes)
    return private.decode()


def file_with(service: Service, auth: Any, *, tool: str = "{}", more: str = "", allow: str = "true") -> str:
    """Return a file with one connection, as JSON."""
    return f"""
        connections:
          api: {{base_url: '{service.url}', allow_private: {allow}, auth: {json.dumps(auth)}}}
        tools:
          whoami: {{http: {{connection: api, url: /whoami}}, {tool.strip("{}")}}}
          echo: {{http: {{connection: api, url: /echo}}}}
          moved: {{http: {{connection: api, url: /moved}}}}
        {more}
    """


def own(server: TokenServer, **changes: Any) -> dict[str, Any]:
    """Return `client_credentials` of the registered client. None omits a key."""
    keys = {"issuer": server.issuer.issuer, "client_id": "gateway", "client_secret": SECRET, **changes}
    return {"client_credentials": {name: value for name, value in keys.items() if value is not None}}


async def whoami(client: Client) -> dict[str, Any]:
    result: dict[str, Any] = (await client.call("whoami"))["structuredContent"]
    return result


async def failure(client: Client, tool: str = "whoami") -> str:
    result = await client.call(tool)
    assert result["isError"] is True
    return str(result["content"][0]["text"])


async def test_fixed_token_and_password_are_sent_unchanged(tmp_path: Path, service: Service) -> None:
    async with product(tmp_path, file_with(service, {"bearer": "fixed-token-123"})) as client:
        await client.call("echo")
    async with product(
        tmp_path, file_with(service, {"basic": {"username": "jörg", "password": "pä:ss word"}})
    ) as client:
        await client.call("echo")
    assert service.seen[0] == "Bearer fixed-token-123"
    assert base64.b64decode((service.seen[1] or "").removeprefix("Basic ")).decode() == "jörg:pä:ss word"


async def test_client_credentials_are_turned_into_a_token_once(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    auth = own(server, scopes=["read", "write"], resource="https://api.example.com/v1", audience="the-api")
    async with product(tmp_path, file_with(service, auth)) as client:
        found = await whoami(client)
        assert found == {"sub": "gateway", "aud": "https://api.example.com/v1", "scope": "read write"}
        assert await whoami(client) == found
    [form] = server.forms
    assert form == {
        "grant_type": "client_credentials",
        "audience": "the-api",
        "scope": "read write",
        "resource": "https://api.example.com/v1",
    }


async def test_secret_is_sent_in_the_body_if_the_server_requires_it(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    server.issuer.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post", "private_key_jwt"]
    server.clients["gateway"].methods = ["client_secret_post"]
    async with product(tmp_path, file_with(service, own(server))) as client:
        assert (await whoami(client))["sub"] == "gateway"
    assert server.forms[0]["client_secret"] == SECRET


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "ES384"])
@pytest.mark.parametrize("written", ["file", "text"])
async def test_private_key_replaces_the_secret(
    tmp_path: Path, server: TokenServer, service: Service, algorithm: str, written: str
) -> None:
    key = Key.make(algorithm)
    server.clients["gateway"] = RegisteredClient(key=key, methods=["client_assertion_jwt"])
    (tmp_path / "key.pem").write_text(pem(key))
    auth = own(server, client_secret=None, private_key="key.pem" if written == "file" else pem(key), key_id=key.kid)
    async with product(tmp_path, file_with(service, auth)) as client:
        assert (await whoami(client))["sub"] == "gateway"
        service.revoked.update(server.tokens)
        assert (await whoami(client))["sub"] == "gateway"  # with a new assertion, because each is accepted once
    assert "client_secret" not in server.forms[0]


async def test_assertion_uses_an_algorithm_of_the_server(tmp_path: Path, server: TokenServer, service: Service) -> None:
    key = Key.make("PS256")
    server.clients["gateway"].key = key
    server.issuer.metadata["token_endpoint_auth_signing_alg_values_supported"] = ["ES256", "PS256"]
    auth = own(server, client_secret=None, private_key=pem(key), key_id="k1")
    async with product(tmp_path, file_with(service, auth)) as client:
        await whoami(client)
    head = json.loads(base64.urlsafe_b64decode(server.forms[0]["client_assertion"].split(".")[0] + "=="))
    assert head == {"alg": "PS256", "kid": "k1", "typ": "JWT"}


async def test_token_endpoint_can_replace_the_issuer(tmp_path: Path, server: TokenServer, service: Service) -> None:
    auth = own(server, issuer=None, token_url=server.url)
    async with product(tmp_path, file_with(service, auth)) as client:
        assert (await whoami(client))["sub"] == "gateway"
    assert not server.issuer.asked


async def test_openid_discovery_is_the_fallback(tmp_path: Path, server: TokenServer, service: Service) -> None:
    server.issuer.missing.add("/.well-known/oauth-authorization-server")
    async with product(tmp_path, file_with(service, own(server))) as client:
        assert (await whoami(client))["sub"] == "gateway"


async def test_service_metadata_names_the_authorization_server(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    service.metadata = {"resource": service.url, "authorization_servers": [server.issuer.issuer]}
    async with product(tmp_path, file_with(service, own(server, issuer=None))) as client:
        assert (await whoami(client))["aud"] == service.url
    for other in ("https://other.example.com", "https://["):
        service.metadata = {"resource": other, "authorization_servers": [server.issuer.issuer]}
        async with product(tmp_path, file_with(service, own(server, issuer=None))) as client:
            assert "contains the metadata of a different service" in await failure(client)


async def test_request_is_repeated_once_with_a_new_token_after_401(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    async with product(tmp_path, file_with(service, own(server))) as client:
        await whoami(client)
        service.revoked.update(server.tokens)
        assert (await whoami(client))["sub"] == "gateway"
        assert len(server.forms) == 2
        assert len(service.seen) == 3
        server.tokens.clear()  # the service rejects all tokens from now on
        server.additions["access_token"] = "useless-token"
        assert "HTTP 401" in await failure(client)
        assert len(service.seen) == 5


async def test_concurrent_401_responses_share_one_new_token(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    async with product(tmp_path, file_with(service, own(server))) as client:
        await whoami(client)
        service.revoked.update(server.tokens)
        found = await asyncio.gather(*(whoami(client) for _ in range(12)))
        assert {each["sub"] for each in found} == {"gateway"}
        assert len(server.forms) == 2


async def test_fixed_token_is_not_retried(tmp_path: Path, service: Service) -> None:
    async with product(tmp_path, file_with(service, {"bearer": "fixed-token-123"})) as client:
        assert "HTTP 401" in await failure(client)
    assert len(service.seen) == 1


async def test_concurrent_calls_wait_for_one_token(tmp_path: Path, server: TokenServer, service: Service) -> None:
    server.free.clear()
    async with product(tmp_path, file_with(service, own(server))) as client:
        first = asyncio.create_task(whoami(client))
        while not server.forms:
            await asyncio.sleep(0)
        others = [asyncio.create_task(whoami(client)) for _ in range(8)]
        await asyncio.sleep(0)
        first.cancel()  # cancelling the first waiter does not affect the others
        await asyncio.wait([first])
        server.free.set()
        assert {each["sub"] for each in await asyncio.gather(*others)} == {"gateway"}
    assert len(server.forms) == 1


@pytest.mark.parametrize(("lasts", "fetches"), [(300, 1), ("300", 1), (None, 1), (0, 2), (-5, 2)])
async def test_token_is_cached_for_its_lifetime(
    tmp_path: Path, server: TokenServer, service: Service, lasts: Any, fetches: int
) -> None:
    server.lasts = lasts
    async with product(tmp_path, file_with(service, own(server))) as client:
        await whoami(client)
        await whoami(client)
    assert len(server.forms) == fetches


async def test_authorization_server_can_rotate_its_keys(tmp_path: Path, server: TokenServer, service: Service) -> None:
    async with product(tmp_path, file_with(service, own(server))) as client:
        await whoami(client)
        server.issuer.rotate_keys()
        service.revoked.update(server.tokens)
        assert (await whoami(client))["sub"] == "gateway"


async def test_token_error_is_shown_without_secrets(tmp_path: Path, server: TokenServer, service: Service) -> None:
    echoed = f"no client with {SECRET} or {base64.b64encode(f'gateway:{SECRET}'.encode()).decode()}"
    server.answer = web.json_response({"error": "invalid_client", "error_description": echoed}, status=401)
    async with product(tmp_path, file_with(service, own(server))) as client:
        text = await failure(client)
    assert text.startswith("The gateway cannot sign in: 127.0.0.1 returned 401 invalid_client: no client with ***")
    assert SECRET not in text
    assert not service.seen


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (web.json_response({"access_token": "a b"}), "without a valid access token"),
        (web.json_response({"access_token": "a\r\nX-Evil: 1"}), "without a valid access token"),
        (web.json_response({"access_token": "x" * 20_000}), "without a valid access token"),
        (web.json_response({"access_token": "abc", "token_type": "DPoP"}), "Only bearer tokens are supported"),
        (web.json_response({"access_token": "abc", "issued_token_type": []}), "Only bearer tokens are supported"),
        (
            web.json_response(
                {"access_token": "abc", "issued_token_type": "urn:ietf:params:oauth:token-type:id_token"}
            ),
            "Only bearer tokens are supported",
        ),
        (web.Response(text="<html>", status=200), "returned 200"),
        (web.Response(text="x" * 600_000, status=500), "exceeds 512KiB"),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"}), "returned 302"),
    ],
    ids=["space", "line-break", "long", "dpop", "no-text", "id-token", "html", "large", "redirect"],
)
async def test_invalid_token_response_is_not_sent(
    tmp_path: Path, server: TokenServer, service: Service, answer: web.Response, said: str
) -> None:
    server.answer = answer
    async with product(tmp_path, file_with(service, own(server))) as client:
        assert said in await failure(client)
    assert not service.seen


async def test_metadata_of_another_issuer_is_not_believed(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    server.issuer.metadata["issuer"] = "https://evil.example.com"
    async with product(tmp_path, file_with(service, own(server))) as client:
        assert "the metadata of a different issuer" in await failure(client)
        server.issuer.metadata["issuer"] = server.issuer.issuer
        server.issuer.metadata["token_endpoint"] = "http://evil.example.com/token"
        assert "contains no token_endpoint with an https URL" in await failure(client)
    assert not server.forms


async def test_address_guard_applies_to_the_authorization_server(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    async with product(tmp_path, file_with(service, own(server), allow="false")) as client:
        text = await failure(client)
    assert "a loopback address, which is blocked" in text
    assert not server.issuer.asked


async def test_token_is_not_sent_to_another_origin_after_a_redirect(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    async with protected_service(server) as other:
        service.moved["/moved"] = f"{other.url}/echo"
        async with product(tmp_path, file_with(service, own(server))) as client:
            await client.call("moved")
        assert other.seen == [None]


async def test_echoed_token_is_masked(tmp_path: Path, server: TokenServer, service: Service) -> None:
    async with product(tmp_path, file_with(service, own(server))) as client:
        assert await client.text("echo") == '{"sent":"Bearer ***"}'


CALLERS: Final = """
        auth:
          oauth: {{issuer: '{issuer}', audience: '{audience}'}}
          api_keys: {{ci: {{secret: '{key}', scopes: ['gateway:admin']}}}}
        audit: {{file: audit.jsonl, arguments: full}}
"""


class Served:
    """A gateway over HTTP, whose callers have tokens."""

    def __init__(self, gateway: Gateway, client: aiohttp.ClientSession) -> None:
        self._gateway = gateway
        self._client = client

    async def shown(self, path: str) -> str:
        """Return the output that an operator sees."""
        url = str(self._gateway.url).removesuffix("/mcp") + path
        async with self._client.get(url, headers={"Authorization": f"Bearer {API_KEY}"}) as response:
            assert response.status == 200
            return await response.text()

    async def call(self, credential: str, tool: str = "whoami", **arguments: Any) -> dict[str, Any]:
        status, body = await self.answer(credential, tool, **arguments)
        assert status == 200, body
        result: dict[str, Any] = body["result"]
        return result

    async def answer(self, credential: str, tool: str, **arguments: Any) -> tuple[int, dict[str, Any]]:
        params = {"name": tool, "arguments": arguments}
        headers = {**modern_headers("tools/call", params), "Accept": BOTH, "Authorization": f"Bearer {credential}"}
        assert self._gateway.url is not None
        async with self._client.post(
            self._gateway.url, json=modern_request("tools/call", params), headers=headers
        ) as response:
            return response.status, await response.json()


@asynccontextmanager
async def exchanging(
    folder: Path,
    server: TokenServer,
    service: Service,
    *,
    log_level: str = "error",
    where: dict[str, Any] | None = None,
    **changes: Any,
) -> AsyncIterator[Served]:
    auth = {
        "token_exchange": {
            **own(server, **(where or {}))["client_credentials"],
            "audience": "the-api",
            "scopes": ["read"],
        }
    }
    more = CALLERS.format(issuer=server.issuer.issuer, audience=server.gateway, key=API_KEY)
    config = file_with(service, auth, more=more, **changes)
    async with served_over_http(folder, config, log_level=log_level) as (gateway, client):
        yield Served(gateway, client)


async def test_caller_token_is_exchanged_and_never_forwarded(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    async with exchanging(tmp_path, server, service) as served:
        alice, bob = server.caller_token("alice"), server.caller_token("bob")
        assert (await served.call(alice))["structuredContent"] == {"sub": "alice", "aud": "the-api", "scope": "read"}
        assert (await served.call(bob))["structuredContent"]["sub"] == "bob"
        assert (await served.call(alice))["structuredContent"]["sub"] == "alice"
    assert [form["subject_token"] for form in server.forms] == [alice, bob]
    assert {form["grant_type"] for form in server.forms} == {EXCHANGE}
    for headers in service.headers:
        assert alice not in str(headers)
        assert bob not in str(headers)


async def test_responses_are_cached_per_caller(tmp_path: Path, server: TokenServer, service: Service) -> None:
    async with exchanging(tmp_path, server, service, tool="{cache: 1h}") as served:
        alice, bob = server.caller_token("alice"), server.caller_token("bob")
        for _ in range(2):
            assert (await served.call(alice))["structuredContent"]["sub"] == "alice"
            assert (await served.call(bob))["structuredContent"]["sub"] == "bob"
    assert len(service.seen) == 2


async def test_caller_without_a_token_gets_an_error(tmp_path: Path, server: TokenServer, service: Service) -> None:
    async with exchanging(tmp_path, server, service) as served:
        result = await served.call(API_KEY)
    assert result["isError"] is True
    assert "the request contained none" in result["content"][0]["text"]
    assert not server.forms
    assert not service.seen


async def test_failed_exchange_shows_no_token(tmp_path: Path, server: TokenServer, service: Service) -> None:
    async with exchanging(tmp_path, server, service) as served:
        alice = server.caller_token("alice")
        server.answer = web.json_response({"error": "invalid_grant", "error_description": f"bad: {alice}"}, status=400)
        text = (await served.call(alice))["content"][0]["text"]
    assert text == "The gateway cannot sign in: 127.0.0.1 returned 400 invalid_grant: bad: ***"


async def test_rejected_token_of_one_caller_does_not_affect_others(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    async with exchanging(tmp_path, server, service) as served:
        alice, bob = server.caller_token("alice"), server.caller_token("bob")
        await served.call(alice)
        await served.call(bob)
        service.revoked.add(server.tokens[0])
        await served.call(alice)
        await served.call(bob)
    assert [form["subject_token"] for form in server.forms] == [alice, bob, alice]


async def test_token_exchange_requires_auth_oauth(tmp_path: Path, server: TokenServer, service: Service) -> None:
    auth = {"token_exchange": own(server)["client_credentials"]}
    with pytest.raises(ConfigError, match=r"connections\.api\.auth\.token_exchange: requires `auth\.oauth`"):
        async with product(tmp_path, file_with(service, auth)):
            pass


async def test_replaced_private_key_is_used_after_a_reload(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    first, second = Key.make(), Key.make()
    server.clients["gateway"] = RegisteredClient(key=first, methods=["client_assertion_jwt"])
    (tmp_path / "key.pem").write_text(pem(first))
    config = file_with(service, own(server, client_secret=None, private_key="key.pem"))
    async with product(tmp_path, config) as client:
        assert (await whoami(client))["sub"] == "gateway"
        server.clients["gateway"].key = second
        (tmp_path / "key.pem").write_text(pem(second))
        await client.gateway.app.reloads.reload()
        service.revoked.update(server.tokens)
        assert (await whoami(client))["sub"] == "gateway"


async def test_credentials_are_masked_in_logs_records_status_and_errors(
    tmp_path: Path, server: TokenServer, service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    async with exchanging(tmp_path, server, service, log_level="debug") as served:
        alice, bob = server.caller_token("alice"), server.caller_token("bob")
        answers = [await served.call(alice), await served.call(alice, "echo")]
        server.answer = web.json_response(
            {"error": "invalid_grant", "error_description": f"{bob} {SECRET}"}, status=400
        )
        answers.append(await served.call(bob))
        answers.append(await served.call(alice, "moved", token=server.tokens[0]))
        shown = [await served.shown(path) for path in ("/-/status", "/-/config", "/metrics")]
    captured = capfd.readouterr()
    everything = f"{answers}{shown}{captured.out}{captured.err}{(tmp_path / 'audit.jsonl').read_text()}"
    assert "tools/call" in everything
    assert "token_exchange" in everything
    for secret in (alice, bob, SECRET, *server.tokens):
        assert secret not in everything
        assert secret.rpartition(".")[2] not in everything  # the signature is sufficient


async def test_token_of_another_issuer_is_never_exchanged(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    async with token_server() as other, exchanging(tmp_path, server, service) as served:
        foreign = other.issuer.token(server.gateway)
        forged = server.issuer.token(server.gateway, key=other.issuer.keys[0])
        elsewhere = server.issuer.token("https://other.example.com/mcp")
        for token in (foreign, forged, elsewhere):
            status, _ = await served.answer(token, "whoami")
            assert status == 401
    assert not server.forms


async def test_two_clients_of_one_issuer_do_not_share_tokens(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    server.clients["second"] = RegisteredClient(client_id="second", secret="another-secret-of-2")
    one, two = own(server), own(server, client_id="second", client_secret="another-secret-of-2")
    text = file_with(service, one).replace(
        "        tools:",
        f"          again: {{base_url: '{service.url}', allow_private: true, auth: {json.dumps(one)}}}\n"
        f"          other: {{base_url: '{service.url}', allow_private: true, auth: {json.dumps(two)}}}\n"
        "        tools:\n"
        "          whoagain: {http: {connection: again, url: /whoami}}\n"
        "          whoelse: {http: {connection: other, url: /whoami}}",
        1,
    )
    async with product(tmp_path, text) as client:
        subjects = [
            (await client.call(tool))["structuredContent"]["sub"]
            for tool in ("whoami", "whoelse", "whoagain", "whoami")
        ]
    assert subjects == ["gateway", "second", "gateway", "gateway"]
    assert len(server.forms) == 2


@pytest.mark.parametrize(
    ("methods", "advertised", "keys", "sent"),
    [
        ("post", ["client_secret_basic", "client_secret_post"], {}, ["basic", "post"]),
        ("post", None, {}, ["basic", "post"]),
        ("post", ["private_key_jwt"], {}, ["basic", "post"]),
        ("post", ["client_secret_post"], {}, ["post"]),
        ("post", ["client_secret_basic"], {}, ["basic", "post"]),
        ("basic", ["client_secret_post"], {}, ["post", "basic"]),
        ("post", ["client_secret_basic"], {"client_auth": "post"}, ["post"]),
        ("basic", ["client_secret_post"], {"client_auth": "basic"}, ["basic"]),
        ("basic", ["client_secret_basic", "client_secret_post"], {}, ["basic"]),
    ],
)
async def test_secret_is_sent_by_the_other_method_after_invalid_client(
    tmp_path: Path,
    server: TokenServer,
    service: Service,
    methods: str,
    advertised: list[str] | None,
    keys: dict[str, str],
    sent: list[str],
) -> None:
    server.issuer.metadata["token_endpoint_auth_methods_supported"] = advertised
    server.clients["gateway"].methods = [f"client_secret_{methods}"]
    async with product(tmp_path, file_with(service, own(server, **keys))) as client:
        assert (await whoami(client))["sub"] == "gateway"
    assert ["post" if "client_secret" in form else "basic" for form in server.forms] == sent


async def test_server_that_rejects_both_methods_is_asked_twice(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    server.clients["gateway"].secret = "another-secret-0123"
    async with product(tmp_path, file_with(service, own(server, issuer=None, token_url=server.url))) as client:
        assert "401 invalid_client" in await failure(client)
    assert len(server.forms) == 2


@pytest.mark.parametrize(("taken", "tries"), [("issuer", 1), ("token endpoint", 2)])
async def test_assertion_audience_is_the_issuer_then_the_token_endpoint(
    tmp_path: Path, server: TokenServer, service: Service, taken: str, tries: int
) -> None:
    key = Key.make()
    server.clients["gateway"] = RegisteredClient(key=key, methods=["client_assertion_jwt"])
    server.audiences = [server.issuer.issuer if taken == "issuer" else server.url]
    async with product(tmp_path, file_with(service, own(server, client_secret=None, private_key=pem(key)))) as client:
        assert (await whoami(client))["sub"] == "gateway"
    claims = [jwt.decode(form["client_assertion"], options={"verify_signature": False}) for form in server.forms]
    assert [claim["aud"] for claim in claims] == [server.issuer.issuer, server.url][:tries]


TOKEN_TEXT: Final = "token-0123456789"


@pytest.mark.parametrize(
    "answer",
    [
        web.json_response({"access_token": TOKEN_TEXT, "token_type": None}),
        web.json_response({"access_token": TOKEN_TEXT, "token_type": "BEARER "}),
        web.json_response({"access_token": TOKEN_TEXT, "token_type": "BearerToken"}),
        web.json_response({"access_token": TOKEN_TEXT, "issued_token_type": None, "expires_in": "soon"}),
        web.Response(text=f'{{"access_token": "{TOKEN_TEXT}", "expires_in": {"9" * 5000}}}'),
        web.Response(text=f'\ufeff{{"access_token": "{TOKEN_TEXT}"}}', content_type="text/html"),
        web.Response(
            text=f"access_token={TOKEN_TEXT}&scope=repo&token_type=bearer&expires_in=60",
            content_type="application/x-www-form-urlencoded",
        ),
    ],
    ids=["null-type", "odd-case", "apigee", "text-lifetime", "long-number", "byte-order-mark", "form"],
)
async def test_token_responses_are_parsed_leniently(
    tmp_path: Path, server: TokenServer, service: Service, answer: web.Response
) -> None:
    server.answer = answer
    async with product(tmp_path, file_with(service, own(server))) as client:
        await client.call("echo")
        await client.call("echo")
    assert service.seen == [f"Bearer {TOKEN_TEXT}"] * 2
    assert len(server.forms) == 1


@pytest.mark.parametrize(
    "answer",
    [
        web.json_response({"error": "bad_verification_code", "error_description": "The code is wrong."}),
        web.Response(text="error=bad_verification_code&error_description=The+code+is+wrong."),
        web.json_response({"error": "bad_verification_code: The code is wrong.", "access_token": None}),
    ],
    ids=["json", "form", "null-token"],
)
async def test_error_with_status_200_is_shown(
    tmp_path: Path, server: TokenServer, service: Service, answer: web.Response
) -> None:
    server.answer = answer
    async with product(tmp_path, file_with(service, own(server))) as client:
        assert "returned 200 bad_verification_code: The code is wrong." in await failure(client)
    assert not service.seen


@pytest.mark.parametrize("named", ["issuer of the callers", "token_url"])
async def test_service_cannot_choose_the_exchange_server(
    tmp_path: Path, server: TokenServer, service: Service, named: str
) -> None:
    async with token_server() as thief:
        service.metadata = {"resource": service.url, "authorization_servers": [thief.issuer.issuer]}
        where = {"issuer": None, "token_url": server.url if named == "token_url" else None}
        async with exchanging(tmp_path, server, service, where=where) as served:
            alice = server.caller_token("alice")
            assert (await served.call(alice))["structuredContent"]["sub"] == "alice"
        assert not thief.forms
    assert [form["subject_token"] for form in server.forms] == [alice]


async def test_exchange_with_several_issuers_names_one(tmp_path: Path, server: TokenServer, service: Service) -> None:
    auth = {"token_exchange": own(server, issuer=None)["client_credentials"]}
    several = "auth: {oauth: {issuer: ['https://a.example.com', 'https://b.example.com']}}"
    with pytest.raises(ConfigError, match=r"token_exchange: needs `issuer`, because `auth\.oauth` has more than one"):
        async with product(tmp_path, file_with(service, auth, more=several)):
            pass


async def test_changed_authorization_server_gets_no_secret(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    service.metadata = {"resource": service.url, "authorization_servers": [server.issuer.issuer]}
    async with token_server() as other, product(tmp_path, file_with(service, own(server, issuer=None))) as client:
        assert (await whoami(client))["sub"] == "gateway"
        service.revoked.update(server.tokens)
        service.metadata = {"resource": service.url, "authorization_servers": [other.issuer.issuer]}
        server.answer = web.Response(status=500)
        assert "returned 500" in await failure(client)  # discards the cached metadata
        text = await failure(client)
        assert f"now names the authorization server {other.issuer.issuer}" in text
        assert "set `issuer`" in text
        assert not other.forms


async def test_workload_assertion_is_exchanged_with_the_jwt_bearer_grant(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    assertion = server.issuer.token(server.issuer.issuer, sub="workload")
    auth = {"client_credentials": {"issuer": server.issuer.issuer, "assertion": assertion, "scopes": ["read"]}}
    async with product(tmp_path, file_with(service, auth)) as client:
        assert (await whoami(client))["sub"] == "workload"
    assert server.forms == [{"grant_type": JWT_BEARER, "assertion": assertion, "scope": "read"}]


async def test_rejected_workload_assertion_is_not_sent_again_and_not_shown(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    assertion = server.issuer.token("https://wrong.example.com", sub="workload")
    server.answer = web.json_response({"error": "invalid_grant", "error_description": assertion}, status=400)
    auth = {"client_credentials": {"issuer": server.issuer.issuer, "assertion": assertion}}
    async with product(tmp_path, file_with(service, auth)) as client:
        text = await failure(client)
    assert "invalid_grant" in text
    assert assertion not in text
    assert len(server.forms) == 1


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"client_secret": "x"}, "has `client_secret` and `assertion`, but only one is allowed"),
        ({"assertion": None, "private_key": "key.pem"}, "needs `client_id`"),
    ],
)
async def test_contradictory_client_credentials_are_an_error(
    tmp_path: Path, service: Service, changes: dict[str, Any], problem: str
) -> None:
    auth = {"client_credentials": {"issuer": "https://idp.example.com", "assertion": "x.y.z", **changes}}
    with pytest.raises(ConfigError, match=re.escape(problem)):
        async with product(tmp_path, file_with(service, auth)):
            pass


def enterprise(idp: TokenServer, server: TokenServer, **changes: Any) -> dict[str, Any]:
    server.trusted = idp
    subject_token = idp.issuer.token(idp.gateway, sub="ann")
    provider = {
        "issuer": idp.issuer.issuer,
        "client_id": "gateway",
        "client_secret": SECRET,
        "subject_token": subject_token,
        **changes,
    }
    present = {name: value for name, value in provider.items() if value is not None}
    client = {"issuer": server.issuer.issuer, "client_id": "gateway", "client_secret": SECRET}
    return {"enterprise": {"idp": present, **client}}


async def test_enterprise_exchanges_an_id_token_for_an_assertion_and_then_for_an_access_token(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    async with token_server() as idp:
        async with product(tmp_path, file_with(service, enterprise(idp, server))) as client:
            assert (await whoami(client))["sub"] == "ann"
        assert idp.forms[0]["requested_token_type"] == ID_JAG
        assert idp.forms[0]["audience"] == server.issuer.issuer
    assert [form["grant_type"] for form in server.forms] == [JWT_BEARER]


async def test_enterprise_rejects_an_access_token_in_place_of_the_assertion(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    async with token_server() as idp:
        idp.additions = {"issued_token_type": ACCESS_TOKEN}
        async with product(tmp_path, file_with(service, enterprise(idp, server))) as client:
            assert "an unsupported type of token" in await failure(client)
    assert not server.forms


async def test_enterprise_for_each_caller_requires_auth_oauth(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    auth = enterprise(server, server, subject_token=None)
    with pytest.raises(ConfigError, match=r"connections\.api\.auth\.enterprise: requires `auth\.oauth`"):
        async with product(tmp_path, file_with(service, auth)):
            pass


@pytest.mark.parametrize("asks", ["authorization server", "service"])
@pytest.mark.parametrize("kind", ["client_credentials", "token_exchange", "enterprise"])
async def test_token_is_bound_to_a_key_if_a_server_requires_a_proof(
    tmp_path: Path, server: TokenServer, service: Service, kind: str, asks: str
) -> None:
    server.proofs, service.proofs = ProofChecker("nonce-of-server"), ProofChecker("nonce-of-service")
    server.requires_proofs = asks == "authorization server"
    async with AsyncExitStack() as stack:
        idp = await stack.enter_async_context(token_server())
        auth = enterprise(idp, server) if kind == "enterprise" else {kind: own(server)["client_credentials"]}
        served = await stack.enter_async_context(of_two_issuers(tmp_path, service, auth, server))
        token = server.caller_token("alice")
        for _ in range(2):
            result = await served.call(token)
            assert result["structuredContent"]["sub"] in {"alice", "ann", "gateway"}
        service.revoked.update(server.tokens)
        assert not (await served.call(token)).get("isError")
    assert len(server.bound) == 2
    assert not any((sent or "").startswith("Bearer") for sent in service.seen[2:])


async def test_proof_of_one_service_does_not_change_tokens_of_another(
    tmp_path: Path, server: TokenServer, service: Service
) -> None:
    server.proofs, service.proofs = ProofChecker("nonce-of-server"), ProofChecker("nonce-of-service")
    auth = own(server)
    async with protected_service(server) as bearer_only:
        text = file_with(service, auth).replace(
            "        tools:",
            f"          other: {{base_url: '{bearer_only.url}', allow_private: true, auth: {json.dumps(auth)}}}\n"
            "        tools:\n"
            "          whoelse: {http: {connection: other, url: /whoami}}",
            1,
        )
        async with product(tmp_path, text) as client:
            assert (await whoami(client))["sub"] == "gateway"
            assert (await client.call("whoelse"))["structuredContent"]["sub"] == "gateway"
        assert [(sent or "").partition(" ")[0] for sent in bearer_only.seen] == ["Bearer"]
    # Control: the first service receives a bound token.
    assert (service.seen[-1] or "").startswith("DPoP ")


async def test_server_that_ignores_proofs_is_asked_once(tmp_path: Path, server: TokenServer, service: Service) -> None:
    service.proofs = ProofChecker("nonce-of-service")
    async with product(tmp_path, file_with(service, own(server))) as client:
        assert "HTTP 401" in await failure(client)
    assert len(service.seen) <= 3


def exchange_at(idp: TokenServer, server: TokenServer, kind: str, **changes: Any) -> dict[str, Any]:
    """Return `token_exchange` at `idp`, or `enterprise` with this identity provider."""
    if kind == "token_exchange":
        return {"token_exchange": own(idp, **changes)["client_credentials"]}
    return enterprise(idp, server, subject_token=None, **changes)


@asynccontextmanager
async def of_two_issuers(
    folder: Path, service: Service, auth: dict[str, Any], *idps: TokenServer
) -> AsyncIterator[Served]:
    """Serve callers of two issuers."""
    oauth = [{"issuer": idp.issuer.issuer, "audience": idp.gateway} for idp in idps]
    config = file_with(service, auth, more=f"auth: {{oauth: {json.dumps(oauth)}}}")
    async with served_over_http(folder, config) as (gateway, client):
        yield Served(gateway, client)


@pytest.mark.parametrize("kind", ["token_exchange", "enterprise"])
async def test_caller_token_is_only_sent_to_its_own_issuer(
    tmp_path: Path, server: TokenServer, service: Service, kind: str
) -> None:
    async with token_server() as idp, token_server() as other:
        auth = exchange_at(idp, server, kind)
        async with of_two_issuers(tmp_path, service, auth, idp, other) as served:
            foreign, own_token = other.caller_token("bob"), idp.caller_token("alice")
            text = (await served.call(foreign))["content"][0]["text"]
            assert text == (
                f"This service requires an access token issued by {idp.issuer.issuer}. "
                f"Your token was issued by {other.issuer.issuer}"
            )
            assert not idp.forms
            await served.call(own_token)
            assert {form["subject_token"] for form in idp.forms} == {own_token}


@pytest.mark.parametrize("kind", ["token_exchange", "enterprise"])
async def test_caller_token_is_sent_to_a_server_that_belongs_to_its_issuer(
    tmp_path: Path, server: TokenServer, service: Service, kind: str
) -> None:
    async with token_server() as idp, token_server() as other:
        auth = exchange_at(idp, server, kind, subject_issuers=other.issuer.issuer)
        async with of_two_issuers(tmp_path, service, auth, other, server) as served:
            token = other.caller_token("bob")
            await served.call(token)
            assert {form["subject_token"] for form in idp.forms} == {token}
            await served.call(server.caller_token("alice"))
            assert {form["subject_token"] for form in idp.forms} == {token}


@pytest.mark.parametrize("kind", ["token_exchange", "enterprise"])
@pytest.mark.parametrize(
    ("subject_issuers", "problem"),
    [(None, "needs `subject_issuers`"), ("https://c.example.com", "https://c.example.com is not an issuer of")],
)
async def test_exchange_at_an_unknown_issuer_is_an_error(
    tmp_path: Path, server: TokenServer, service: Service, kind: str, subject_issuers: str | None, problem: str
) -> None:
    changes = {} if subject_issuers is None else {"subject_issuers": subject_issuers}
    auth = exchange_at(server, server, kind, **changes)
    several = "auth: {oauth: {issuer: ['https://a.example.com', 'https://b.example.com']}}"
    with pytest.raises(ConfigError, match=problem):
        async with product(tmp_path, file_with(service, auth, more=several)):
            pass
