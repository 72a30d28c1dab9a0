"""Tests for protected resource metadata and for access tokens over HTTP."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from gateway.config.models.auth import ApiKey, Auth, OAuth
from tests.authorization_server import AuthorizationServer, authorization_server
from tests.messages import initialize_request, legacy_request
from tests.requirements import requirement
from tests.transports.http_server import RunningServer, http_server
from tests.transports.test_authentication import LISTEN, LISTEN_RESULT, STREAMS, bearer, modern, opened

WELL_KNOWN = "/.well-known/oauth-protected-resource"
PUBLIC = "https://tools.example.com/ops"
KEY = "key-of-ci-0123456789"
SECONDS = 10


def auth_of(issuer: AuthorizationServer, **more: object) -> Auth:
    oauth = OAuth.model_validate({"issuer": issuer.issuer, **more})
    return Auth(api_keys={"ci": ApiKey(secret=[KEY], scopes=["tools.use"])}, oauth=[oauth])


@asynccontextmanager
async def served(
    *, public_url: str | None = None, trusted_proxies: Sequence[str] = (), **more: object
) -> AsyncIterator[tuple[RunningServer, AuthorizationServer]]:
    async with (
        authorization_server() as issuer,
        http_server(
            auth=auth_of(issuer, **more),
            allowed_hosts=["127.0.0.1", "tools.example.com"],
            public_url=public_url,
            trusted_proxies=trusted_proxies,
        ) as it,
    ):
        yield it, issuer


@pytest.fixture
async def direct() -> AsyncIterator[tuple[RunningServer, AuthorizationServer]]:
    async with served(required_scopes=["tools.use"], scopes_supported=["tools.use", "more"]) as it:
        yield it


@requirement("authorization/metadata")
@pytest.mark.parametrize(
    ("path", "resource"), [("", "/mcp"), ("/", "/mcp"), ("/mcp", "/mcp"), ("/mcp/", "/mcp"), ("/sse", "/sse")]
)
async def test_metadata_names_the_resource_and_its_authorization_server(
    direct: tuple[RunningServer, AuthorizationServer], path: str, resource: str
) -> None:
    http_server, issuer = direct
    answer = await http_server.send(
        None, {"Origin": "https://anywhere.example.com"}, method="GET", path=WELL_KNOWN + path
    )
    assert answer.status == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.json == {
        "resource": f"http://{http_server.address}{resource}",
        "authorization_servers": [issuer.issuer],
        "scopes_supported": ["tools.use", "more"],
        "bearer_methods_supported": ["header"],
    }


@requirement("authorization/metadata")
async def test_metadata_lists_dpop_if_every_issuer_requires_it() -> None:
    async with served(dpop="required") as (http_server, _):
        document = (await http_server.send(None, method="GET", path=WELL_KNOWN)).json
        assert document["dpop_bound_access_tokens_required"] is True
        assert "ES256" in document["dpop_signing_alg_values_supported"]


@requirement("authorization/metadata")
async def test_server_without_oauth_has_no_metadata() -> None:
    async with http_server() as it:
        answer = await it.send(None, method="GET", path=WELL_KNOWN)
        assert (answer.status, answer.json) == (404, {"error": "not found; this server does not accept access tokens"})


@requirement("authorization/metadata")
async def test_metadata_is_served_at_all_well_known_paths() -> None:
    async with served(public_url=PUBLIC) as (http_server, issuer):
        for path in (
            WELL_KNOWN,
            f"{WELL_KNOWN}/mcp",
            f"{WELL_KNOWN}/ops/mcp",
            f"/ops{WELL_KNOWN}",
            f"/ops{WELL_KNOWN}/mcp",
        ):
            answer = await http_server.send(None, {"Host": "tools.example.com"}, method="GET", path=path)
            assert answer.json["resource"] == f"{PUBLIC}/mcp"
        challenge = (await http_server.send(initialize_request(), path="/ops/mcp")).headers["WWW-Authenticate"]
        assert f'resource_metadata="{PUBLIC}{WELL_KNOWN}/mcp"' in challenge
        sse = (await http_server.send(None, method="GET", path="/sse")).headers["WWW-Authenticate"]
        assert f'resource_metadata="{PUBLIC}{WELL_KNOWN}/sse"' in sse
        del issuer


@requirement("authorization/metadata")
async def test_metadata_behind_a_trusted_proxy_contains_the_clients_url() -> None:
    async with served(trusted_proxies=["127.0.0.1"]) as (http_server, _):
        forwarded = {"X-Forwarded-Host": "tools.example.com", "X-Forwarded-Proto": "https", "X-Forwarded-Prefix": "/a"}
        answer = await http_server.send(None, forwarded, method="GET", path=WELL_KNOWN)
        assert answer.json["resource"] == "https://tools.example.com/a/mcp"


@requirement("authorization/metadata")
async def test_metadata_is_read_only_and_requires_a_permitted_host(
    direct: tuple[RunningServer, AuthorizationServer],
) -> None:
    http_server, _ = direct
    asked = {"Origin": "https://x.example.com", "Access-Control-Request-Method": "GET"}
    preflight = await http_server.send(None, asked, method="OPTIONS", path=WELL_KNOWN)
    assert preflight.status == 204
    assert preflight.headers["Access-Control-Allow-Headers"] == "*"
    assert (await http_server.send(b"", method="POST", path=WELL_KNOWN)).status == 405
    assert (await http_server.send(None, {"Host": "evil.example.com"}, method="GET", path=WELL_KNOWN)).status == 421
    assert (await http_server.send(None, method="GET", path=f"{WELL_KNOWN}/other")).status == 404


@requirement("authorization/challenge", "authorization/audience")
async def test_missing_token_returns_a_challenge_with_the_metadata_url(
    direct: tuple[RunningServer, AuthorizationServer],
) -> None:
    http_server, issuer = direct
    where = f'scope="tools.use", resource_metadata="http://{http_server.address}{WELL_KNOWN}/mcp"'
    missing = await http_server.send(initialize_request())
    assert missing.headers["WWW-Authenticate"] == f"Bearer {where}"
    stale = issuer.token(f"http://{http_server.address}/mcp", scope="tools.use", exp=int(time.time()) - 600)
    expired = await http_server.send(initialize_request(), bearer(stale))
    assert expired.status == 401
    assert expired.headers["WWW-Authenticate"] == (
        f'Bearer error="invalid_token", error_description="The token has expired", {where}'
    )
    narrow = await http_server.send(
        initialize_request(), bearer(issuer.token(f"http://{http_server.address}/mcp", scope="other"))
    )
    assert narrow.status == 403
    assert narrow.headers["WWW-Authenticate"].startswith('Bearer error="insufficient_scope"')
    assert where in narrow.headers["WWW-Authenticate"]
    for path in ("/mcp", "/sse"):
        good = issuer.token(f"http://{http_server.address}{path}", scope="tools.use")
        assert (await http_server.send(*modern("tools/list", headers=bearer(good)))).status == 200


@requirement("authorization/every-request")
async def test_keys_and_tokens_are_accepted(direct: tuple[RunningServer, AuthorizationServer]) -> None:
    http_server, issuer = direct
    assert (await http_server.send(*modern("tools/list", headers=bearer(KEY)))).status == 200
    token = issuer.token(f"http://{http_server.address}/mcp", scope="tools.use")
    assert (await http_server.send(*modern("tools/list", headers={"X-API-Key": token}))).status == 401


@requirement("authorization/sessions")
async def test_session_continues_with_a_new_token(
    direct: tuple[RunningServer, AuthorizationServer],
) -> None:
    http_server, issuer = direct
    us = f"http://{http_server.address}/mcp"
    first, second = (bearer(issuer.token(us, scope="tools.use", jti=each)) for each in ("1", "2"))
    session_id = await http_server.initialize(headers=first)
    assert (await http_server.send(legacy_request("ping"), {"Mcp-Session-Id": session_id, **second})).status == 200


@requirement("authorization/every-request")
async def test_stream_ends_when_its_token_expires(direct: tuple[RunningServer, AuthorizationServer]) -> None:
    http_server, issuer = direct
    us = f"http://{http_server.address}/mcp"
    short, long = issuer.token(us, scope="tools.use", lasts=4), issuer.token(us, scope="tools.use")
    streams = [await opened(http_server, path, short) for path in STREAMS]
    lasting = [await opened(http_server, path, long) for path in STREAMS]
    for stream in streams:
        await stream.ended()
    assert streams[STREAMS.index(LISTEN)].last == LISTEN_RESULT
    assert not any(stream.has_ended for stream in lasting)


@requirement("authorization/audience")
async def test_changed_oauth_settings_end_sessions_of_old_tokens(
    direct: tuple[RunningServer, AuthorizationServer],
) -> None:
    http_server, issuer = direct
    token = issuer.token([f"http://{http_server.address}/mcp", "urn:elsewhere"], scope="tools.use")
    changes = (
        {"audience": "urn:elsewhere"},
        {"audience": "urn:elsewhere", "required_scopes": ["tools.admin"]},
    )
    for change in changes:
        stream = await opened(http_server, "/mcp", token)
        kept = await opened(http_server, "/mcp", KEY)
        http_server.adopt(auth_of(issuer, **change))
        await stream.ended()
        assert not kept.has_ended
        http_server.adopt(auth_of(issuer, audience="urn:elsewhere"))
    async with authorization_server() as another:
        stream = await opened(http_server, "/mcp", token)
        http_server.adopt(auth_of(another))
        await stream.ended()
        assert (await http_server.send(initialize_request(), bearer(token))).status == 401


@requirement("authorization/every-request")
async def test_unreachable_issuer_returns_a_retryable_error() -> None:
    async with served() as (http_server, issuer):
        issuer.is_down = True
        http_server.adopt(None)
        http_server.adopt(auth_of(issuer))
        async with asyncio.timeout(SECONDS):
            answer = await http_server.send(
                initialize_request(), bearer(issuer.token(f"http://{http_server.address}/mcp"))
            )
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) >= 1
        assert "WWW-Authenticate" not in answer.headers
        assert (await http_server.send(*modern("tools/list", headers=bearer(KEY)))).status == 200


@requirement("authorization/malformed", "authorization/every-request")
async def test_malformed_or_duplicate_credentials_are_rejected(
    direct: tuple[RunningServer, AuthorizationServer],
) -> None:
    http_server, issuer = direct
    token = issuer.token(f"http://{http_server.address}/mcp", scope="tools.use")
    for headers in ({"Authorization": "Bearer"}, bearer(f"{token} {token}"), {**bearer(token), "X-API-Key": KEY}):
        answer = await http_server.send(initialize_request(), headers)
        assert answer.status == 400
        assert 'error="invalid_request"' in answer.headers["WWW-Authenticate"]
    answer = await http_server.send(initialize_request(), path=f"/mcp?access_token={token}")
    assert answer.status == 401
    assert (await http_server.send(*modern("tools/list", headers=bearer(token)))).status == 200
