"""The HTTP backend against real servers on loopback."""

import asyncio
import gzip
import os
import re
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from gateway.config.models.backends import Connection, Http
from gateway.config.models.definition_keys import Output
from gateway.config.models.interpolated_text import InterpolatedText, Interpolation
from gateway.config.secrets.redactor import Redactor
from gateway.errors import ExecutionError
from gateway.executors.cache import MAX_BYTES, CachingExecutor, ResponseCache
from gateway.executors.http.executor import HttpExecutor, compile_http
from gateway.executors.invocation import Executor, Failure, Outcome, RawOutput
from gateway.executors.output.output_store import OutputStore
from gateway.executors.shared_services import Services
from gateway.json_types import Json
from gateway.net.clients import HttpClients
from gateway.processes.processes import Processes
from gateway.threads import DaemonThreadPool
from tests.executors.recording import make_invocation, make_scope, messages_of
from tests.local_server import listening

SECRET = "s3cr3t-t0k3n"


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    async with HttpClients() as clients, Processes() as processes, DaemonThreadPool(4) as threads:
        yield Services(processes=processes, http=clients, threads=threads, output_store=OutputStore())


class Server:
    """A loopback server that records requests."""

    def __init__(self) -> None:
        self.seen: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.answer: Callable[[web.Request], Awaitable[web.StreamResponse]] = _hello
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        return await self.answer(request)

    async def run(self) -> AsyncIterator["Server"]:
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", self.handle)
        async with listening(application) as port:
            self.port = port
            yield self


async def _hello(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"hello": "world"}, headers={"X-Kind": "greeting"})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async for server in Server().run():
        yield server


@pytest.fixture
async def other() -> AsyncIterator[Server]:
    """A server with a different origin."""
    async for server in Server().run():
        yield server


def http(**fields: Json) -> Http:
    return Http.model_validate({"allow_private": True, **fields})


def compiled(
    config: Http,
    services: Services,
    *,
    connections: Mapping[str, Connection] | None = None,
    inputs: Mapping[str, Json] | None = None,
    optional: tuple[str, ...] = (),
    idempotent: bool = False,
) -> Executor:
    scope = make_scope(inputs or {}, optional=optional)
    executor = compile_http(
        config,
        connections=connections or {},
        scope=scope,
        services=services,
        redactor=Redactor([SECRET]),
        idempotent=idempotent,
        output=Output(template="{{ status }}"),
    )
    assert not scope.problems.has_errors, messages_of(scope)
    return executor


async def call(
    config: Http,
    services: Services,
    arguments: Mapping[str, Json] | None = None,
    *,
    connections: Mapping[str, Connection] | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = 20.0,
    waited: float = 0.0,
) -> Outcome:
    """Compile and execute. The arguments are the inputs, optional if their name starts with `optional`."""
    inputs: dict[str, Json] = {"optional": {}} | {name: {} for name in arguments or {}}
    executor = compiled(config, services, connections=connections, inputs=inputs, optional=("optional",))
    invocation = make_invocation(arguments or {}, headers=headers or {}, timeout=seconds, waited=waited)
    return await executor.execute(invocation)


async def refusal(awaitable: Awaitable[Outcome]) -> str:
    with pytest.raises(ExecutionError) as caught:
        await awaitable
    return str(caught.value)


async def test_response_has_status_headers_and_media_type(services: Services, server: Server) -> None:
    outcome = await call(http(url=f"{server.url}/x"), services)
    assert isinstance(outcome, RawOutput)
    assert outcome.data == b'{"hello": "world"}'
    assert outcome.media_type == "application/json; charset=utf-8"
    assert outcome.variables["status"] == 200
    assert outcome.variables["headers"]["x-kind"] == "greeting"
    assert server.seen[0].method == "GET"


async def test_url_is_sent_as_expanded(services: Services, server: Server) -> None:
    await call(http(url=f"{server.url}/%7Ea/{{x}}?q={{y}}"), services, {"x": "a/b c", "y": "&%41"})
    assert server.seen[0].raw_path == "/%7Ea/a%2Fb%20c?q=%26%2541"


async def test_absent_values_are_omitted_from_query_headers_and_json(services: Services, server: Server) -> None:
    config = http(
        url=f"{server.url}/?a=1",
        query={"q": "{{ text }}", "gone": "{{ optional }}"},
        headers={"X-Text": "<{{ text }}>", "X-Gone": "{{ optional }}"},
        json={"n": "{{ n }}", "list": ["{{ text }}", "{{ optional }}"], "gone": "{{ optional }}"},
    )
    await call(config, services, {"text": "ä&b", "n": 3})
    request = server.seen[0]
    assert request.method == "POST"
    assert request.raw_path == "/?a=1&q=%C3%A4%26b"
    assert request.headers["X-Text"] == "<ä&b>"
    assert "X-Gone" not in request.headers
    assert server.bodies == [b'{"n":3,"list":["\xc3\xa4&b"]}']
    assert request.headers["Content-Type"] == "application/json"


async def test_form_and_body_have_a_content_type(services: Services, server: Server) -> None:
    await call(http(url=server.url, form={"a": "{{ v }}", "b": "{{ optional }}"}), services, {"v": "x=1&y"})
    await call(http(url=server.url, body="<{{ v }}>"), services, {"v": "ü"})
    await call(http(url=server.url, body="x", headers={"content-type": "text/csv"}), services)
    assert server.bodies == [b"a=x%3D1%26y", "<ü>".encode(), b"x"]
    types = [request.headers["Content-Type"] for request in server.seen]
    assert types == ["application/x-www-form-urlencoded", "text/plain; charset=utf-8", "text/csv"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_request_without_a_body_has_no_content_type(services: Services, server: Server, method: str) -> None:
    await call(http(url=server.url, method=method), services)
    assert server.bodies == [b""]
    assert "Content-Type" not in server.seen[0].headers


async def test_body_of_megabytes_is_sent(services: Services, server: Server) -> None:
    await call(http(url=server.url, body="{{ v }}{{ v }}"), services, {"v": "x" * 520_000})
    assert len(server.bodies[0]) == 1_040_000


async def test_tool_overrides_headers_and_query_of_its_connection(services: Services, server: Server) -> None:
    shared = Connection(
        base_url=f"{server.url}/base/",
        headers={"Authorization": "Bearer x", "X-Both": "connection"},
        query={"key": "1", "both": "connection"},
        allow_private=True,
    )
    config = Http(connection="api", url="/p", headers={"x-both": "tool"}, query={"both": "tool"})
    await call(config, services, connections={"api": shared})
    request = server.seen[0]
    assert request.raw_path == "/base/p?key=1&both=tool"
    assert request.headers["Authorization"] == "Bearer x"
    assert request.headers.getall("X-Both") == ["tool"]


async def test_only_named_headers_of_the_caller_are_forwarded(services: Services, server: Server) -> None:
    config = http(url=server.url, forward_headers=["X-Request-Id", "X-Missing"], headers={"X-Own": "1"})
    await call(config, services, headers={"x-request-id": "42", "x-other": "1", "authorization": "Bearer y"})
    headers = server.seen[0].headers
    assert headers["X-Request-Id"] == "42"
    assert not {"x-missing", "x-other", "authorization"} & {name.lower() for name in headers}


async def test_cookies_are_not_stored(services: Services, server: Server) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        response = web.Response()
        response.set_cookie("session", "1")
        return response

    server.answer = answer
    for _ in range(2):
        await call(http(url=server.url), services)
    assert [request.cookies for request in server.seen] == [{}, {}]


async def test_proxy_of_the_environment_is_ignored(
    services: Services, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name)
    assert isinstance(await call(http(url=server.url), services), RawOutput)


async def test_proxy_of_the_connection_is_used_and_checked(services: Services, server: Server) -> None:
    shared = Connection(base_url="http://api.invalid", proxy=server.url)
    outcome = await call(Http(connection="api", url="/x"), services, connections={"api": shared})
    assert isinstance(outcome, RawOutput)
    assert server.seen[0].headers["Host"] == "api.invalid"
    inside = Connection(base_url="http://169.254.169.254", proxy=server.url)
    text = await refusal(call(Http(connection="api", url="/x"), services, connections={"api": inside}))
    assert "`169.254.169.254` has a link-local address" in text
    assert len(server.seen) == 1


async def test_error_status_is_a_failure_with_reason_and_excerpt(services: Services, server: Server) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, reason="Nope", text=f"\x1b[31mno {SECRET}\x1b[0m" + "x" * 5000)

    server.answer = answer
    outcome = await call(http(url=server.url), services)
    assert isinstance(outcome, Failure)
    assert outcome.text.startswith("HTTP 404 Nope\nno ***xxx")
    assert len(outcome.text) < 2100


async def test_success_statuses_are_configurable(services: Services, server: Server) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text="none")

    server.answer = answer
    outcome = await call(http(url=server.url, success=["2xx", 404]), services)
    assert isinstance(outcome, RawOutput)
    assert outcome.data == b"none"


async def test_redirects_are_followed_and_counted(services: Services, server: Server) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        left = int(request.query.get("left", "0"))
        if left:
            raise web.HTTPFound(f"?left={left - 1}")
        return web.Response(text="there")

    server.answer = answer
    assert isinstance(await call(http(url=f"{server.url}/?left=3"), services), RawOutput)
    text = await refusal(call(http(url=f"{server.url}/?left=4"), services))
    assert text == "127.0.0.1 redirects more than 3 times (follow_redirects)"
    outcome = await call(http(url=f"{server.url}/?left=1", follow_redirects=0), services)
    assert outcome == Failure(text="HTTP 302 Found\nLocation: ?left=0\n302: Found")


async def test_another_origin_gets_no_credentials_and_no_forwarded_header(
    services: Services, server: Server, other: Server
) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(f"{other.url}/there")

    server.answer = answer
    shared = Connection(base_url=server.url, headers={"X-Key": "1"}, allow_private=True)
    token = InterpolatedText((Interpolation(SECRET, secret=True),))
    config = Http(
        connection="api",
        url="/",
        method="POST",
        body="text",
        headers={"Authorization": "x", "X-Token": token, "Accept": "text/html"},
        forward_headers=("X-Request-Id",),
    )
    await call(config, services, connections={"api": shared}, headers={"x-request-id": "1"})
    bound = {"x-key", "authorization", "x-token", "x-request-id"}
    assert bound <= {name.lower() for name in server.seen[0].headers}
    assert not bound & {name.lower() for name in other.seen[0].headers}
    assert other.seen[0].headers["Accept"] == "text/html"
    assert (other.seen[0].method, other.bodies) == ("POST", [b"text"])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0x7f.1"])
async def test_address_error_names_the_setting(services: Services, host: str) -> None:
    url = f"http://{host}:1/"
    said = re.search(
        r"`(allow_private: .+)`, or `true` for every address", await refusal(call(Http(url=url), services))
    )
    assert said is not None
    assert "loopback" not in await refusal(call(Http(url=url, **yaml.safe_load(said[1])), services))


async def test_shared_session_rejects_private_addresses(services: Services, server: Server) -> None:
    with pytest.raises(OSError, match="loopback address"):
        await services.http.shared.get(server.url)


async def test_endless_response_is_truncated(services: Services, server: Server) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    server.answer = answer
    assert "exceeds 8MiB" in await refusal(call(http(url=server.url), services))


LONG = b"x" * 100_000
RAW_DEFLATE = zlib.compress(LONG)[2:-4]


def compressed_as(body: bytes, encodings: Sequence[str]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers=[("Content-Encoding", each) for each in encodings])

    return answer


@pytest.mark.parametrize(
    ("body", "encodings"),
    [
        (gzip.compress(LONG), ["gzip"]),
        (gzip.compress(LONG), ["x-gzip"]),
        (gzip.compress(LONG), ["X-GZip, identity"]),
        (gzip.compress(gzip.compress(LONG)), ["gzip, gzip"]),
        (gzip.compress(gzip.compress(LONG)), ["gzip", "gzip"]),
        (gzip.compress(zlib.compress(LONG)), ["deflate,x-gzip"]),
        (RAW_DEFLATE, ["identity, deflate"]),
        (LONG, ["utf-8"]),
        (b"", ["compress"]),
    ],
)
async def test_compressed_response_is_decompressed(
    services: Services, server: Server, body: bytes, encodings: Sequence[str]
) -> None:
    server.answer = compressed_as(body, encodings)
    outcome = await call(http(url=server.url), services)
    assert isinstance(outcome, RawOutput)
    assert outcome.data == (LONG if body else b"")


@pytest.mark.parametrize(
    ("body", "encoding", "said"),
    [
        (b"\x1f\x9d", "compress", "has the content encoding `compress`, which is not supported"),
        (gzip.compress(b"x"), "pack200-gzip, gzip", "has the content encoding `pack200-gzip`"),
        (gzip.compress(b"x") + b"y", "x-gzip", "is incomplete or encoded incorrectly"),
        (b"plain", "x-gzip", "is incomplete or encoded incorrectly"),
        (gzip.compress(LONG)[:-20], "x-gzip", "is incomplete or encoded incorrectly"),
        (gzip.compress(gzip.compress(b"\0" * 2**26)), "gzip, gzip", "exceeds 8MiB"),
    ],
)
async def test_malformed_compressed_body_is_not_shown(
    services: Services, server: Server, body: bytes, encoding: str, said: str
) -> None:
    server.answer = compressed_as(body, [encoding])
    assert said in await refusal(call(http(url=server.url), services))


async def test_failure_is_decoded_with_its_charset(services: Services, server: Server) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=400, body="中文".encode("gbk"), headers={"Content-Type": "text/plain; charset=gbk"})

    server.answer = answer
    outcome = await call(http(url=server.url), services)
    assert isinstance(outcome, Failure)
    assert "中文" in outcome.text


async def talking(sent: bytes, services: Services) -> Outcome:
    """Call a server that responds with these bytes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        return await call(http(url=f"http://127.0.0.1:{port}/?key={SECRET}"), services)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", "closed the connection without a response"),
        (b"HTTP/1.1 200 OK\r\nContent-Len", "closed the connection without a response"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "is not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\nabc", "encod"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "is incomplete or encoded incorrectly"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "is incomplete or encoded incorrectly"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
            "is incomplete or encoded incorrectly",
        ),
    ],
)
async def test_malformed_response_is_a_clear_error(services: Services, sent: bytes, said: str) -> None:
    assert said in await refusal(talking(sent, services))


async def test_server_that_never_completes_its_response_times_out(services: Services) -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert isinstance(await talking(interim * 20 + final, services), RawOutput)
    assert "is not valid HTTP" in await refusal(talking(interim * 10_000 + final, services))


async def test_long_header_fields_are_read(services: Services) -> None:
    sent = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=%s\r\nContent-Length: 2\r\n\r\nok"
    assert isinstance(await talking(sent % (b"x" * 20_000), services), RawOutput)
    assert "is not valid HTTP" in await refusal(talking(sent % (b"x" * 100_000), services))


async def test_header_fields_that_are_not_utf8_are_replaced(services: Services) -> None:
    outcome = await talking(b"HTTP/1.1 200 OK\r\nX-A: \xff\r\nContent-Length: 0\r\n\r\n", services)
    assert isinstance(outcome, RawOutput)
    assert outcome.variables["headers"]["x-a"] == "\N{REPLACEMENT CHARACTER}"


async def test_closed_port_and_unknown_host_are_clear_errors(services: Services, server: Server) -> None:
    with_nobody = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = with_nobody.sockets[0].getsockname()[1]
    with_nobody.close()
    await with_nobody.wait_closed()
    text = await refusal(call(http(url=f"http://127.0.0.1:{port}/"), services))
    assert text == f"Cannot connect to 127.0.0.1:{port}: connection refused"
    assert (
        await refusal(call(http(url="http://nowhere.invalid/"), services)) == "The host nowhere.invalid cannot be found"
    )
    long = "x" * 64
    assert (
        await refusal(call(http(url=f"http://{long}.invalid/"), services)) == f"The host {long}.invalid cannot be found"
    )


async def test_plain_http_instead_of_tls_is_a_clear_error(services: Services, server: Server) -> None:
    text = await refusal(call(http(url=f"https://127.0.0.1:{server.port}/"), services))
    assert text.startswith("TLS handshake with 127.0.0.1 failed: ")


async def test_slow_response_ends_at_the_timeout_or_deadline(services: Services, server: Server) -> None:
    gone = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            await asyncio.sleep(60)
        finally:
            gone.set()
        return response

    server.answer = answer
    assert (
        await refusal(call(http(url=server.url, timeout="100ms"), services))
        == "The request to 127.0.0.1 timed out after 0.1 s"
    )
    await asyncio.wait_for(gone.wait(), 20)
    gone.clear()
    text = await refusal(call(http(url=server.url), services, seconds=0.1, waited=60.0))
    assert text == "The request to 127.0.0.1 timed out after 60.1 s"
    await asyncio.wait_for(gone.wait(), 20)


async def test_cancelled_call_closes_its_connection(services: Services, server: Server) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def answer(_request: web.Request) -> web.StreamResponse:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            gone.set()
        return web.Response()

    server.answer = answer
    task = asyncio.create_task(call(http(url=server.url), services))
    await asyncio.wait_for(begun.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(gone.wait(), 20)


def failing(
    times: int, *, status: int = 503, retry_after: str = "0"
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Respond a number of times with `status`, then succeed."""
    left = iter(range(times))

    async def answer(_request: web.Request) -> web.StreamResponse:
        if next(left, None) is not None:
            return web.Response(status=status, headers={"Retry-After": retry_after})
        return web.Response(text="at last")

    return answer


async def test_failed_request_is_retried(services: Services, server: Server) -> None:
    server.answer = failing(2)
    outcome = await call(http(url=server.url, retry={"attempts": 3}), services)
    assert isinstance(outcome, RawOutput)
    assert outcome.data == b"at last"
    assert len(server.seen) == 3


async def test_last_response_of_the_retries_is_returned(services: Services, server: Server) -> None:
    server.answer = failing(9)
    outcome = await call(http(url=server.url, retry={"attempts": 2}), services)
    assert outcome == Failure(text="HTTP 503 Service Unavailable")
    assert len(server.seen) == 2


async def test_unlisted_status_is_not_retried(services: Services, server: Server) -> None:
    server.answer = failing(9, status=500)
    await call(http(url=server.url, retry={"attempts": 3}), services)
    assert len(server.seen) == 1


async def test_retry_beyond_the_deadline_is_not_awaited(services: Services, server: Server) -> None:
    server.answer = failing(9, retry_after="3600")
    async with asyncio.timeout(20):
        outcome = await call(http(url=server.url, retry={"attempts": 3}), services)
    assert outcome == Failure(text="HTTP 503 Service Unavailable")
    assert len(server.seen) == 1


async def test_timeout_is_retried_within_the_deadline(services: Services, server: Server) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        if len(server.seen) == 1:
            await asyncio.sleep(60)
        return web.Response(text="at last")

    server.answer = answer
    outcome = await call(http(url=server.url, timeout="200ms", retry={"attempts": 2}), services)
    assert isinstance(outcome, RawOutput)


async def test_only_repeatable_requests_are_retried(services: Services, server: Server) -> None:
    shared = Connection.model_validate({"base_url": server.url, "allow_private": True, "retry": {"attempts": 3}})
    config = Http(connection="api", url="/", body="x")
    for idempotent, times in ((False, 1), (True, 2)):
        server.seen.clear()
        server.answer = failing(1)
        executor = compiled(config, services, connections={"api": shared}, idempotent=idempotent)
        await executor.execute(make_invocation())
        assert len(server.seen) == times


def cached(executor: Executor) -> CachingExecutor:
    assert isinstance(executor, HttpExecutor)
    return CachingExecutor(
        executor=executor,
        ttl=timedelta(minutes=1),
        cache=ResponseCache(MAX_BYTES),
        key_prefix="tools.ask",
        key_of=executor.cache_key,
    )


async def test_cache_key_is_the_whole_request(services: Services, server: Server) -> None:
    config = http(url=f"{server.url}/{{x}}", forward_headers=["X-User"])
    executor = cached(compiled(config, services, inputs={"x": {}}))
    for x, user in (("a", "1"), ("a", "1"), ("b", "1"), ("a", "2"), ("a", "2")):
        await executor.execute(make_invocation({"x": x}, headers={"x-user": user}))
    assert len(server.seen) == 3


async def test_failed_response_is_not_cached(services: Services, server: Server) -> None:
    server.answer = failing(1)
    executor = cached(compiled(http(url=server.url), services))
    assert isinstance(await executor.execute(make_invocation()), Failure)
    assert isinstance(await executor.execute(make_invocation()), RawOutput)


MISTAKES: list[tuple[dict[str, Json], str]] = [
    ({"connection": "gitub"}, "connection: unknown connection `gitub`; did you mean `github`?"),
    (
        {"url": "https://x/", "connection": "github"},
        "url: is an absolute URL, but the connection already has an address. ",
    ),
    ({"headers": {"Content-Length": "1"}}, "headers.Content-Length: `Content-Length` is set by the gateway"),
    ({"headers": {"a b": "1"}}, "headers.a b: `a b` is not a valid header name"),
    (
        {"headers": {"X-A": "a\nb"}},
        "headers.X-A: a header value must not contain line breaks or other control characters",
    ),
    ({"forward_headers": ["cookie"]}, "forward_headers.0: `cookie` cannot be forwarded: it is a credential"),
    (
        {"forward_headers": ["Authorization"]},
        "forward_headers.0: `Authorization` cannot be forwarded: it is a credential for this daemon",
    ),
    (
        {"forward_headers": ["Mcp-Session-Id"]},
        "forward_headers.0: `Mcp-Session-Id` cannot be forwarded: it is a credential for this daemon",
    ),
    ({"forward_headers": ["*"]}, "forward_headers.0: `*` is not a valid header name"),
    (
        {"forward_headers": ["X-API-Key"]},
        "forward_headers.0: `X-API-Key` cannot be forwarded: it is a credential for this daemon",
    ),
    ({"cache": "1m", "body": "x"}, "cache: requires GET or HEAD (got POST)"),
    ({"retry": {}, "method": "PATCH"}, "retry: a retry could apply the request twice. `retry` requires GET, HEAD,"),
    ({"allow_private": ["10.0.0.1/8"]}, "allow_private.0: is not a network: 10.0.0.1/8 has host bits set."),
    ({"allow_private": ["*.corp"]}, "allow_private.0: expected a host name, an address, or a network"),
    ({"allow_private": ["localhost:8080"]}, "allow_private.0: expected a host name, an address, or a network"),
    ({"allow_private": [""]}, "allow_private.0: expected a host name, an address, or a network"),
    ({"query": {"q": "{{ nope }}"}}, "query.q: `nope` is not an input"),
]


@pytest.mark.parametrize(("fields", "message"), MISTAKES)
async def test_mistake_is_a_load_error(services: Services, fields: dict[str, Json], message: str) -> None:
    scope = make_scope()
    connections = {"github": Connection(base_url="https://api.github.com")}
    url = "/x" if "connection" in fields else "https://x/"
    config = Http.model_validate({"url": url, **fields})
    compile_http(config, connections=connections, scope=scope, services=services, redactor=Redactor())
    assert len(messages_of(scope)) == 1
    assert messages_of(scope)[0].startswith(message)


async def test_mistakes_of_a_connection_are_reported_at_the_connection(services: Services, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    connection = Connection.model_validate(
        {
            "base_url": "https://h/{x}",
            "proxy": "socks5://u:p@h",
            "tls": {"ca": "ca.pem", "key": "key.pem"},
            "headers": {"X-A": "{{ nope }}"},
        }
    )
    scope = make_scope(folder=tmp_path)
    config = Http(connection="api", url="/")
    compile_http(config, connections={"api": connection}, scope=scope, services=services, redactor=Redactor())
    places = [message.partition(": ")[0] for message in messages_of(scope)]
    assert places == [
        "connections.api.base_url",
        "connections.api.proxy",
        "connections.api.tls.key",
        "connections.api.tls",
        "connections.api.headers.X-A",
    ]
    assert "u:p" not in "".join(messages_of(scope))


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only counts entries


@pytest.mark.build
async def test_thousand_calls_leak_nothing(server: Server) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/hang":
            await asyncio.sleep(60)
        if request.path == "/moved":
            raise web.HTTPFound("/x")
        return web.Response(status=500 if request.path == "/bad" else 200, text="x" * 5000)

    server.answer = answer
    tasks, threads, descriptors = len(asyncio.all_tasks()), threading.active_count(), open_descriptors()
    async with HttpClients() as clients, Processes() as processes, DaemonThreadPool(4) as pool:
        services = Services(processes=processes, http=clients, threads=pool, output_store=OutputStore())
        executors = [
            compiled(http(url=f"http://localhost:{server.port}/{path}", timeout="300ms"), services)
            for path in ("ok", "bad", "moved", "ok", "ok", "ok", "ok", "ok", "ok", "hang")
        ]

        async def one(executor: Executor) -> None:
            try:
                await executor.execute(make_invocation())
            except ExecutionError as error:
                assert "timed out after" in str(error)  # noqa: PT017 - only for hanging servers

        for _ in range(10):
            await asyncio.gather(*(one(executor) for executor in executors for _ in range(10)))
    async with asyncio.timeout(10):
        while (
            len(asyncio.all_tasks()) > tasks
            or threading.active_count() > threads
            or open_descriptors() > descriptors + 1
        ):
            await asyncio.sleep(0.05)
