"""Tests for the middleware and for the admin API."""

import errno
import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from aiohttp import web

from gateway.config.models.address import Address
from gateway.errors import ConfigError
from gateway.transports.listener.http_connection import ConnectionLimits
from gateway.transports.listener.http_listener import HttpListener, ListenAddress, reason_of
from tests.captured_logs import capture_logs
from tests.messages import initialize_request
from tests.transports.http_server import RunningServer, http_server

PAGE = "http://localhost:3000"


@pytest.fixture
async def served() -> AsyncIterator[RunningServer]:
    async with http_server() as it:
        yield it


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def closed() -> AsyncIterator[RunningServer]:
    """A shared server that refuses everyone."""
    async with http_server() as it:
        yield it


@pytest.mark.parametrize(
    ("headers", "status", "key"),
    [
        ({"Host": "evil.example.com"}, 421, "listen.allowed_hosts"),
        ({"Origin": "http://evil.example.com"}, 403, "listen.allowed_origins"),
        ({"Origin": "null"}, 403, "listen.allowed_origins"),
        ({"Host": "evil.example.com", "Origin": PAGE}, 421, "listen.allowed_hosts"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS", "PUT"])
@pytest.mark.asyncio(loop_scope="module")
async def test_unknown_host_gets_a_json_rpc_error(
    closed: RunningServer, method: str, headers: dict[str, str], status: int, key: str
) -> None:
    answer = await closed.send(initialize_request() if method == "POST" else None, headers, method=method)
    assert answer.status == status
    assert key in answer.json["error"]["message"]
    assert "id" not in answer.json
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert len(closed.sessions) == 0


async def test_allowed_origin_gets_cors_headers(served: RunningServer) -> None:
    for body in (initialize_request(), b"{"):
        answer = await served.send(body, {"Origin": PAGE})
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert "Mcp-Session-Id" in answer.headers["Access-Control-Expose-Headers"]
        assert answer.headers["Vary"] == "Origin"


async def test_probes_accept_any_host(served: RunningServer) -> None:
    for path, key in (("/-/healthy", "healthy"), ("/-/ready", "ready")):
        answer = await served.send(None, {"Host": "10.1.2.3:8000"}, method="GET", path=path)
        assert (answer.status, answer.json[key]) == (200, True)
        assert (await served.send(None, method="HEAD", path=path)).status == 200
        assert (await served.send(b"", method="POST", path=path)).status == 405


@pytest.mark.parametrize("path", ["/-/healthy", "/-/ready", "/-/status", "/-/config", "/metrics", "/no-such-page"])
async def test_admin_responses_are_not_cached_or_sniffed(served: RunningServer, path: str) -> None:
    answer = await served.send(None, method="GET", path=path)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_draining_daemon_is_healthy_but_not_ready(served: RunningServer) -> None:
    served.health.begin_stopping()
    assert (await served.send(None, method="GET", path="/-/healthy")).status == 200
    answer = await served.send(None, method="GET", path="/-/ready")
    assert (answer.status, answer.json["state"]) == (503, "stopping")


class Broken(tuple[str, ...]):
    """Invalid hosts."""

    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("a bug")


async def test_failing_probe_returns_500_and_is_logged() -> None:
    async with http_server(missing=Broken(["shop"])) as served:
        with capture_logs() as logged:
            assert (await served.send(None, method="GET", path="/-/ready")).status == 500
        assert [(line["event"], line["path"]) for line in logged] == [("request handler failed", "/-/ready")]


async def test_only_operators_get_the_problems() -> None:
    async with http_server(missing=["shop"]) as served:
        for headers, problem in (
            ({}, "the upstream shop is required but unreachable"),
            ({"X-Forwarded-For": "192.0.2.1"}, "there are problems. Operators can see them at /-/status"),
        ):
            answer = await served.send(None, headers, method="GET", path="/-/ready")
            assert (answer.status, answer.json["problems"]) == (503, [problem])


@pytest.mark.parametrize(
    ("host", "reason"),
    [("192.0.2.1", "Cannot assign requested address"), ("no-such-host.invalid", "cannot be resolved")],
)
async def test_address_of_another_machine_is_reported(host: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        await HttpListener(
            web.Application(), ListenAddress(address=Address(host, 0)), connection_limits=ConnectionLimits()
        ).start()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, "cannot listen on 127.0.0.1:80: Permission denied"),
        (errno.ENOBUFS, f"cannot listen on 127.0.0.1:80: {os.strerror(errno.ENOBUFS)}"),
    ],
)
def test_reason_names_the_address(number: int, reason: str) -> None:
    assert reason_of(OSError(number, os.strerror(number)), Address("127.0.0.1", 80)) == reason


async def test_reload_request_returns_the_problems(served: RunningServer) -> None:
    answer = await served.send(None, method="POST", path="/-/reload")
    assert (answer.status, answer.json) == (200, {"generation": 2, "problems": []})
    served.control.problems.append("config.yaml:3:1: tools: …")
    answer = await served.send(None, method="POST", path="/-/reload")
    assert (answer.status, answer.json["problems"]) == (422, served.control.problems)


async def test_reload_requires_post(served: RunningServer) -> None:
    answer = await served.send(None, method="GET", path="/-/reload")
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")


THROUGH_A_PROXY = {
    "X-Forwarded-For": "203.0.113.7",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "tools.example.com",
    "X-Forwarded-Prefix": "/team",
}


async def test_forwarded_host_of_a_trusted_proxy_is_used() -> None:
    async with http_server(
        allowed_hosts=["tools.example.com"], public_url=None, trusted_proxies=["127.0.0.1"]
    ) as served:
        assert (await served.send(initialize_request(), THROUGH_A_PROXY)).status == 200
        assert (await served.send(initialize_request())).status == 421
        evil = {**THROUGH_A_PROXY, "X-Forwarded-Host": "evil.example.com", "Host": "tools.example.com"}
        assert (await served.send(initialize_request(), evil)).status == 421


async def test_paths_work_with_and_without_the_prefix() -> None:
    async with http_server(public_url="https://tools.example.com/ops/team/", allowed_hosts=["127.0.0.1"]) as served:
        for path in ("/mcp", "/mcp/", "/ops/team/mcp", "/ops/team/mcp/"):
            assert (await served.send(initialize_request(), path=path)).status == 200
        for path in ("/ops/mcp", "/team/mcp", "/ops/team/ops/team/mcp", "/ops/teammcp"):
            answer = await served.send(initialize_request(), path=path)
            assert (answer.status, "the MCP endpoint is /ops/team/mcp" in answer.json["error"]) == (404, True)
