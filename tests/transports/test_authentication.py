"""Tests for authentication over HTTP, and for the removal of keys."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import aiohttp
import orjson
import pytest
import pytest_asyncio

from gateway.config.models.auth import ApiKey, Auth
from gateway.json_types import Json, JsonObject
from tests.messages import BOTH, initialize_request, legacy_request, modern_headers, modern_request
from tests.transports.http_server import RunningServer, call, http_server

CI, NEXT, OTHER, ADMIN = (
    "key-of-ci-0123456789",
    "next-key-of-ci-01234",
    "key-of-another-01234",
    "key-of-the-operator!",
)
KEYS: Final = Auth(
    api_keys={
        "ci": ApiKey(secret=[CI, NEXT], scopes=["ops.read"]),
        "other": ApiKey(secret=[OTHER], scopes=["ops.read"]),
        "operator": ApiKey(secret=[ADMIN], scopes=["gateway:admin"]),
    }
)
PATHS: Final = [("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/sse"), ("POST", "/messages")]
OWN: Final = [("GET", "/-/status"), ("POST", "/-/reload"), ("GET", "/metrics")]
SECONDS: Final = 10
LISTEN: Final = "subscriptions/listen"
LISTEN_RESULT: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {
        "resultType": "complete",
        "_meta": {
            "io.modelcontextprotocol/serverInfo": {"name": "http_server", "version": "1"},
            "io.modelcontextprotocol/subscriptionId": 1,
        },
    },
}
"""The result of a subscription."""
STREAMS: Final = ["/mcp", "/sse", LISTEN]
"""The ways to open long-lived streams; the last one is modern."""
EMPTY: Final = MappingProxyType[str, Json]({})


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def modern(method: str, params: JsonObject = EMPTY, *, headers: Mapping[str, str]) -> tuple[Json, dict[str, str]]:
    return modern_request(method, params), {**modern_headers(method, params), **headers}


def without(*names: str) -> Auth:
    keys = {name: key for name, key in KEYS.api_keys.items() if name not in names}
    return Auth(api_keys=keys)


@pytest.fixture
async def served() -> AsyncIterator[RunningServer]:
    async with http_server(auth=KEYS) as it:
        yield it


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def closed() -> AsyncIterator[RunningServer]:
    """A shared server that refuses everyone."""
    async with http_server(auth=KEYS) as it:
        yield it


@pytest.mark.parametrize("headers", [bearer(CI), {"X-API-Key": CI}, {"authorization": f"bearer {CI}"}])
async def test_key_is_accepted_in_both_headers(served: RunningServer, headers: dict[str, str]) -> None:
    assert (await served.send(*modern("tools/list", headers=headers))).status == 200
    assert await served.initialize(headers=headers)


@pytest.mark.parametrize(("method", "path"), [*PATHS, *OWN])
@pytest.mark.parametrize(
    ("headers", "status", "error"),
    [
        ({}, 401, None),
        ({"Authorization": "Basic Y2k6a2V5"}, 401, None),
        (bearer("no-key-of-this-file"), 401, "invalid_token"),
        (bearer(CI[:-1]), 401, "invalid_token"),
        ({"X-API-Key": "no-key-of-this-file"}, 401, "invalid_token"),
        ({"Authorization": "Bearer"}, 400, "invalid_request"),
        ({**bearer(CI), "X-API-Key": CI}, 400, "invalid_request"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_missing_key_is_rejected_first(
    closed: RunningServer, method: str, path: str, headers: dict[str, str], status: int, error: str | None
) -> None:
    body = initialize_request() if method == "POST" else None
    answer = await closed.send(body, headers, method=method, path=path)
    assert answer.status == status
    challenge = answer.headers["WWW-Authenticate"]
    assert challenge.startswith("Bearer")
    assert (f'error="{error}"' in challenge) if error else ("error" not in challenge)
    assert "resource_metadata" not in challenge
    assert answer.json["error"]["message"]
    assert len(closed.sessions) == 0
    assert len(closed.active_requests) == 0


@pytest.mark.parametrize("credential", [bearer(CI), {"X-API-Key": CI}])
async def test_tools_get_no_credentials(served: RunningServer, credential: dict[str, str]) -> None:
    fields = {**credential, "Cookie": "a=b", "X-Request-Id": "42"}
    answer = await served.send(*modern("tools/call", {"name": "echo", "arguments": {}}, headers=fields))
    assert answer.status == 200
    assert served.control.fields["x-request-id"] == "42"
    assert not {"authorization", "x-api-key", "cookie"} & served.control.fields.keys()
    assert CI not in str(served.control.fields)


async def test_preflight_needs_no_key_and_allows_both_headers(served: RunningServer) -> None:
    asked = {
        "Origin": "http://localhost:3000",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, x-api-key",
    }
    answer = await served.send(None, asked, method="OPTIONS")
    assert answer.status == 204
    allowed = answer.headers["Access-Control-Allow-Headers"]
    assert "Authorization" in allowed
    assert "X-API-Key" in allowed


async def test_allowed_origin_can_read_the_401(served: RunningServer) -> None:
    answer = await served.send(initialize_request(), {"Origin": "http://localhost:3000"})
    assert answer.status == 401
    assert "WWW-Authenticate" in answer.headers["Access-Control-Expose-Headers"]


async def test_probes_and_unknown_paths_need_no_key(served: RunningServer) -> None:
    for path, status in (("/-/healthy", 200), ("/-/ready", 200), ("/nothing", 404), ("/.well-known/x", 404)):
        assert (await served.send(None, method="GET", path=path)).status == status


@pytest.mark.parametrize(("method", "path"), OWN)
async def test_admin_paths_require_the_operator_scope(served: RunningServer, method: str, path: str) -> None:
    body = b"" if method == "POST" else None
    refused = await served.send(body, bearer(CI), method=method, path=path)
    assert refused.status == 403
    assert 'error="insufficient_scope"' in refused.headers["WWW-Authenticate"]
    assert 'scope="gateway:admin"' in refused.headers["WWW-Authenticate"]
    assert (await served.send(body, bearer(ADMIN), method=method, path=path)).status == 200


async def test_removed_key_ends_its_sessions_and_calls(served: RunningServer) -> None:
    gone, stays = await served.initialize(headers=bearer(CI)), await served.initialize(headers=bearer(OTHER))
    running = asyncio.create_task(served.send(call("wait"), {"Mcp-Session-Id": gone, **bearer(CI)}))
    async with asyncio.timeout(SECONDS):
        await served.control.started.wait()
        served.adopt(without("ci"))
        await served.control.cancelled.wait()
    await asyncio.gather(running, return_exceptions=True)
    refused = await served.send(legacy_request("ping"), {"Mcp-Session-Id": gone, **bearer(CI)})
    assert refused.status == 401
    assert len(served.sessions) == 1
    assert (await served.send(legacy_request("ping"), {"Mcp-Session-Id": stays, **bearer(OTHER)})).status == 200


async def test_removed_key_ends_its_modern_calls(served: RunningServer) -> None:
    running = asyncio.create_task(
        served.send(*modern("tools/call", {"name": "wait", "arguments": {}}, headers=bearer(CI)))
    )
    async with asyncio.timeout(SECONDS):
        await served.control.started.wait()
        served.adopt(without("other"))
        assert not served.control.cancelled.is_set()
        served.adopt(without("ci"))
        await served.control.cancelled.wait()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("path", STREAMS)
async def test_removed_key_ends_its_streams(served: RunningServer, path: str) -> None:
    mine = await opened(served, path, CI)
    others = await opened(served, path, OTHER)
    served.adopt(without("ci"))
    await mine.ended()
    assert not others.has_ended
    served.adopt(without("ci", "other"))
    await others.ended()
    if path == LISTEN:
        assert mine.last == others.last == LISTEN_RESULT


async def test_changed_scopes_end_streams_and_let_calls_finish(
    served: RunningServer,
) -> None:
    listening, others = await opened(served, LISTEN, CI), await opened(served, LISTEN, OTHER)
    running = asyncio.create_task(
        served.send(*modern("tools/call", {"name": "wait", "arguments": {}}, headers=bearer(CI)))
    )
    async with asyncio.timeout(SECONDS):
        await served.control.started.wait()
        ci = ApiKey(secret=[CI], scopes=["ops.read", "ops.write"])
        served.adopt(Auth(api_keys={**KEYS.api_keys, "ci": ci}))
        await listening.ended()
        assert listening.last == LISTEN_RESULT
        served.control.release.set()
        assert (await running).status == 200
    assert not others.has_ended


async def test_session_continues_with_a_rotated_key(served: RunningServer) -> None:
    session_id = await served.initialize(headers=bearer(CI))
    assert (await served.send(legacy_request("ping"), {"Mcp-Session-Id": session_id, **bearer(NEXT)})).status == 200
    old_stream = await opened(served, "/mcp", CI, session_id)
    assert (await served.send(legacy_request("ping"), {"Mcp-Session-Id": session_id, **bearer(NEXT)})).status == 200
    served.adopt(Auth(api_keys={"ci": ApiKey(secret=[NEXT])}))
    await old_stream.ended()
    assert (await served.send(legacy_request("ping"), {"Mcp-Session-Id": session_id, **bearer(NEXT)})).status == 200


async def test_enabling_authentication_ends_anonymous_sessions() -> None:
    async with http_server() as served:
        session_id = await served.initialize()
        served.adopt(KEYS)
        for headers in ({}, bearer(CI)):
            answer = await served.send(legacy_request("ping"), {"Mcp-Session-Id": session_id, **headers})
            assert answer.status == (404 if headers else 401)


async def test_credentials_are_ignored_without_auth() -> None:
    async with http_server() as served:
        for headers in ({}, bearer("anything"), {"Authorization": "Bearer"}, {**bearer("a"), "X-API-Key": "b"}):
            assert (await served.send(*modern("tools/list", headers=headers))).status == 200


class Stream:
    """An event stream that is read to its end."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.last: JsonObject = {}
        """The last message."""
        self.opened: Final = asyncio.Event()
        self._reading: asyncio.Task[None]

    async def open(self, served: RunningServer, path: str, headers: Mapping[str, str]) -> None:
        self._reading = asyncio.create_task(self._read(served, path, headers))
        async with asyncio.timeout(SECONDS):
            await self.opened.wait()

    @property
    def has_ended(self) -> bool:
        return self._reading.done()

    async def ended(self) -> None:
        await asyncio.wait([self._reading], timeout=SECONDS)
        assert self.has_ended

    async def _read(self, served: RunningServer, path: str, headers: Mapping[str, str]) -> None:
        method, body = "GET", None
        if path == LISTEN:
            method, path = "POST", "/mcp"
            message, fields = modern(LISTEN, {"notifications": {"toolsListChanged": True}}, headers=headers)
            headers, body = {"Content-Type": "application/json", **fields}, orjson.dumps(message)
        url = f"http://{served.address}{path}"
        with suppress(aiohttp.ClientError):  # aborted, not ended
            async with served.client.request(method, url, data=body, headers={"Accept": BOTH, **headers}) as answer:
                assert answer.status == 200
                async for line in answer.content:
                    if line.startswith(b"data: /"):
                        self.endpoint = line.removeprefix(b"data: ").decode().strip()
                    if line.startswith(b"data: {"):
                        self.last = orjson.loads(line.removeprefix(b"data: "))
                    self.opened.set()


async def opened(served: RunningServer, path: str, secret: str, session_id: str | None = None) -> Stream:
    headers = bearer(secret)
    if path == "/mcp":
        headers["Mcp-Session-Id"] = session_id or await served.initialize(headers=headers)
    stream = Stream()
    await stream.open(served, path, headers)
    return stream
