"""Tests for exported spans."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from gateway.json_types import Json
from tests.e2e.daemon import Daemon, serving
from tests.local_server import listening
from tests.messages import MODERN, legacy_request, modern_request, open_session
from tests.telemetry.collector import Collector, Recorded, collecting

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = "b7ad6b7169203331"
OTHER: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_NUMBERS: Final = count(1)
TRACEPARENT: Final = f"00-{TRACE}-{PARENT}-01"
SECRET: Final = "correct-horse-battery"

PLUGIN: Final = '''
from opentelemetry import trace
from gateway.plugin import Context, ProtocolError, ToolError

def current() -> str:
    """In a thread."""
    return format(trace.get_current_span().get_span_context().span_id, "016x")

async def current_on_loop() -> str:
    """On the loop."""
    with trace.get_tracer("author").start_as_current_span("of the author"):
        return format(trace.get_current_span().get_span_context().trace_id, "032x")

async def asks_others(context: Context) -> str:
    """Ask with the shared client, which refuses."""
    try:
        async with context.http.get("http://127.0.0.1:9/secret-path"):
            return "answered"
    except Exception as error:
        return type(error).__name__

def fails(word: str) -> str:
    """Fail with what was given."""
    raise ToolError(f"no {word}")

def protests(word: str) -> str:
    """Fail in the way of the protocol."""
    raise ProtocolError(-1, f"no {word}", {"word": word})

def raises(word: str) -> str:
    """Have a bug."""
    raise RuntimeError(f"no {word}")
'''


class Upstream:
    """An HTTP API that records its requests."""

    def __init__(self) -> None:
        self.headers: list[Mapping[str, str]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return web.Response(text="fine", status=int(request.query.get("status", "200")))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def upstream() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    application = web.Application()
    application.router.add_get("/{path:.*}", upstream.answer)
    async with listening(application) as port:
        upstream.url = f"http://127.0.0.1:{port}"
        yield upstream


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Path:
    folder = tmp_path_factory.mktemp("spans")
    (folder / "plugins").mkdir()
    (folder / "plugins" / "author.py").write_text(PLUGIN)
    (folder / "config.yaml").write_text(f"""
listen: {{http: "127.0.0.1:0"}}
plugins: [plugins]
tools:
  child:
    description: Shows its trace.
    shell: {{command: [sh, -c, "echo $TRACEPARENT $TRACESTATE"]}}
  sleeps: {{description: Takes its time., shell: {{command: [sleep, "60"]}}}}
  breaks: {{description: Fails., shell: {{command: [sh, -c, "exit 3"]}}}}
  fetch:
    description: Asks another service.
    input: {{status: integer?, key: string?}}
    http: {{url: "{upstream.url}/secret-path{{?status,key}}", allow_private: true, cache: 60s}}
  own:
    description: Starts a new trace.
    http: {{url: "{upstream.url}/own", allow_private: true, headers: {{traceparent: "{OTHER}"}}}}
  current: {{python: "author:current"}}
  current_on_loop: {{python: "author:current_on_loop"}}
  asks_others: {{python: "author:asks_others"}}
  fails: {{python: "author:fails"}}
  protests: {{python: "author:protests"}}
  raises: {{python: "author:raises"}}
  asks: {{description: Asks., confirm: "Sure?", content: sure}}
resources:
  note: {{uri: "note:///{{id}}", text: "{{{{ id }}}}"}}
prompts:
  greet: {{description: Greets., messages: [{{user: Hello.}}]}}
""")
    return folder / "config.yaml"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as collector:
        yield collector


def sent_to(url: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "20", "NO_PROXY": "127.0.0.1"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def traced(config: Path, collector: Collector) -> AsyncIterator[Daemon]:
    """Run a daemon that sends its spans to the collector."""
    environ = {**sent_to(collector.url), "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test"}
    async with serving(config, environment=environ) as daemon:
        yield daemon


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def untraced(config: Path) -> AsyncIterator[Daemon]:
    async with serving(config) as daemon:
        yield daemon


@pytest_asyncio.fixture(loop_scope="session")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http:
        yield http


async def ask(
    daemon: Daemon,
    http: aiohttp.ClientSession,
    method: str,
    params: dict[str, Json],
    *,
    carried: Mapping[str, str] | None = None,
    request_id: Json = 1,
    **fields: Json,
) -> Json:
    """Send a request with trace contexts in headers (`carried`) and in `_meta` (`fields`)."""
    name = params.get("name", params.get("uri"))
    named = {} if name is None else {"Mcp-Name": str(name)}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **named, **(carried or {})}
    message = modern_request(method, {**params, "_meta": fields}, request_id=request_id)
    async with http.post(await daemon.url(), json=message, headers=headers) as response:
        return await response.json()


async def call(
    daemon: Daemon,
    http: aiohttp.ClientSession,
    tool: str,
    arguments: dict[str, Json] | None = None,
    *,
    carried: Mapping[str, str] | None = None,
    **fields: Json,
) -> str:
    """Return the text of a tool result."""
    params = {"name": tool, "arguments": arguments or {}}
    answer = await ask(daemon, http, "tools/call", params, carried=carried, **fields)
    return str(answer["result"]["content"][0]["text"]).strip()


async def status_of(daemon: Daemon, http: aiohttp.ClientSession) -> Json:
    async with http.get(urljoin(await daemon.url(), "/-/status")) as response:
        return await response.json()


def fresh() -> str:
    """Return a unique traceparent."""
    return f"00-{next(_NUMBERS):032x}-{PARENT}-01"


async def spans_of(collector: Collector, traceparent: str, *names: str) -> list[Recorded]:
    """Return the spans of a trace with these names."""
    trace_id = traceparent.split("-")[1]
    return [
        await collector.find(lambda span, name=name: span.trace_id == trace_id and span.name == name)  # type: ignore[misc]
        for name in names
    ]


async def test_call_has_three_spans_in_the_callers_trace(
    traced: Daemon, collector: Collector, http: aiohttp.ClientSession
) -> None:
    given = fresh()
    await ask(
        traced,
        http,
        "tools/call",
        {"name": "child", "arguments": {}},
        request_id="r-7",
        traceparent=given,
        tracestate="a=1",
    )
    served, run, shell = await spans_of(collector, given, "tools/call child", "run", "shell")
    assert (served.kind, served.parent_id, served.state) == ("server", PARENT, "a=1")
    assert (run.kind, run.parent_id) == ("internal", served.span_id)
    assert (shell.kind, shell.parent_id) == ("internal", run.span_id)
    assert served.attributes == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": MODERN,
        "jsonrpc.request.id": "r-7",
        "gen_ai.tool.name": "child",
        "gen_ai.operation.name": "execute_tool",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "client.address": "127.0.0.1",
    }
    assert shell.attributes == {"process.executable.name": "sh", "process.exit.code": 0}
    assert served.resource["service.name"] == "mcp-gateway"
    assert served.resource["deployment.environment.name"] == "test"


async def test_child_process_gets_its_parent_span(
    traced: Daemon, collector: Collector, http: aiohttp.ClientSession
) -> None:
    given = fresh()
    parent, state = (await call(traced, http, "child", traceparent=given, tracestate="a=1")).split()
    [shell] = await spans_of(collector, given, "shell")
    assert (parent, state) == (f"00-{shell.trace_id}-{shell.span_id}-01", "a=1")


async def test_http_backend_gets_the_span_of_its_request(
    traced: Daemon, collector: Collector, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    given = fresh()
    await call(traced, http, "fetch", traceparent=given)
    [get] = await spans_of(collector, given, "GET")
    assert get.kind == "client"
    assert upstream.headers[-1]["traceparent"] == f"00-{get.trace_id}-{get.span_id}-01"
    assert get.attributes["http.request.method"] == "GET"
    assert get.attributes["http.response.status_code"] == 200
    assert (get.attributes["server.address"], get.attributes["server.port"]) == ("127.0.0.1", int(upstream.url[17:]))


async def test_trace_does_not_prevent_caching(traced: Daemon, upstream: Upstream, http: aiohttp.ClientSession) -> None:
    before = len(upstream.headers)
    for _ in range(3):
        await call(traced, http, "fetch", {"key": "cached"}, traceparent=fresh())
    assert len(upstream.headers) == before + 1


async def test_trace_headers_in_the_file_take_precedence(
    traced: Daemon, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    await call(traced, http, "own", traceparent=fresh())
    assert upstream.headers[-1]["traceparent"] == OTHER


@pytest.mark.parametrize("tool", ["current", "current_on_loop"])
async def test_plugin_runs_within_its_span(
    traced: Daemon, collector: Collector, http: aiohttp.ClientSession, tool: str
) -> None:
    given = fresh()
    seen = await call(traced, http, tool, traceparent=given)
    [python] = await spans_of(collector, given, "python")
    assert seen == (python.span_id if tool == "current" else python.trace_id)
    if tool == "current_on_loop":
        [own] = await spans_of(collector, given, "of the author")
        assert own.parent_id == python.span_id


async def test_plugin_http_requests_are_children_of_its_span(
    traced: Daemon, collector: Collector, http: aiohttp.ClientSession
) -> None:
    given = fresh()
    raised = await call(traced, http, "asks_others", traceparent=given)
    [python] = await spans_of(collector, given, "python")
    [get] = await spans_of(collector, given, "GET")
    assert (get.kind, get.parent_id) == ("client", python.span_id)
    assert get.attributes == {
        "http.request.method": "GET",
        "server.address": "127.0.0.1",
        "server.port": 9,
        "error.type": raised,
    }


async def test_meta_trace_takes_precedence_over_headers(
    traced: Daemon, collector: Collector, http: aiohttp.ClientSession
) -> None:
    given = fresh()
    await call(traced, http, "child", carried={"traceparent": OTHER}, traceparent=given)
    [served] = await spans_of(collector, given, "tools/call child")
    assert served.parent_id == PARENT


async def test_trace_headers_apply_without_meta(
    traced: Daemon, collector: Collector, http: aiohttp.ClientSession
) -> None:
    given = fresh()
    await call(traced, http, "child", carried={"traceparent": given})
    [served] = await spans_of(collector, given, "tools/call child")
    assert served.parent_id == PARENT


@pytest.mark.parametrize(
    "given", ["", "x", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01", f"{OTHER}-more", 7]
)
async def test_malformed_trace_starts_a_new_one(
    traced: Daemon, collector: Collector, http: aiohttp.ClientSession, given: Json
) -> None:
    version, trace_id, _, _ = (await call(traced, http, "child", traceparent=given)).split("-")
    assert (version, len(trace_id)) == ("00", 32)
    assert trace_id not in {TRACE, OTHER.split("-")[1], "0" * 32}
    served = await collector.find(lambda span: span.trace_id == trace_id and span.kind == "server")
    assert served.parent_id == ""


@pytest.mark.parametrize(
    ("method", "params", "title", "error", "facts"),
    [
        ("tools/call", {"name": "breaks"}, "tools/call breaks", "tool_error", {"gen_ai.tool.name": "breaks"}),
        ("tools/call", {"name": "nobody"}, "tools/call", "-32602", {"rpc.response.status_code": "-32602"}),
        ("tools/call", {"name": "asks"}, "tools/call asks", "-32021", {"rpc.response.status_code": "-32021"}),
        ("resources/read", {"uri": "note:///7"}, "resources/read", None, {"mcp.resource.uri": "note:///7"}),
        ("prompts/get", {"name": "greet"}, "prompts/get greet", None, {"gen_ai.prompt.name": "greet"}),
        ("tools/list", {}, "tools/list", None, {"mcp.method.name": "tools/list"}),
        ("tools/list", {"cursor": "x"}, "tools/list", "-32602", {"rpc.response.status_code": "-32602"}),
    ],
)
async def test_outcomes_follow_the_semantic_conventions(
    traced: Daemon,
    collector: Collector,
    http: aiohttp.ClientSession,
    method: str,
    params: dict[str, Json],
    title: str,
    error: str | None,
    facts: dict[str, Json],
) -> None:
    given = fresh()
    await ask(traced, http, method, params, traceparent=given)
    [served] = await spans_of(collector, given, title)
    assert served.attributes.get("error.type") == error
    assert served.is_error == (error is not None)
    assert facts.items() <= served.attributes.items()


async def test_backend_failure_is_recorded_in_its_span(
    traced: Daemon, collector: Collector, http: aiohttp.ClientSession
) -> None:
    given = fresh()
    await call(traced, http, "fetch", {"status": 503}, traceparent=given)
    await call(traced, http, "breaks", traceparent=given)
    get, shell = await spans_of(collector, given, "GET", "shell")
    assert (get.is_error, get.attributes["error.type"]) == (True, "503")
    assert (shell.is_error, shell.attributes["process.exit.code"]) == (True, 3)


async def test_spans_contain_no_arguments_paths_or_error_messages(
    traced: Daemon, collector: Collector, http: aiohttp.ClientSession
) -> None:
    given = fresh()
    await call(traced, http, "fetch", {"key": SECRET}, traceparent=given)
    await call(traced, http, "fails", {"wrong": SECRET}, traceparent=given)
    for tool in ("fails", "protests", "raises"):
        arguments = {"word": SECRET}
        await ask(traced, http, "tools/call", {"name": tool, "arguments": arguments}, traceparent=given)
    await spans_of(collector, given, "GET", *(f"tools/call {tool}" for tool in ("fails", "protests", "raises")))
    everything = b"".join(collector.raw)
    assert SECRET.encode() not in everything
    assert b"secret-path" not in everything


async def test_session_id_is_recorded_as_a_hash(
    traced: Daemon, collector: Collector, http: aiohttp.ClientSession
) -> None:
    url, given = await traced.url(), fresh()
    session = await open_session(http, url, "2025-06-18")
    calling = legacy_request("tools/call", {"name": "child"})
    for _ in range(2):
        async with http.post(url, json=calling, headers={**session, "traceparent": given}) as response:
            assert response.status == 200
    [served] = await spans_of(collector, given, "tools/call child")
    assert len(served.attributes["mcp.session.id"]) == 32
    assert served.attributes["mcp.protocol.version"] == "2025-06-18"
    assert session["Mcp-Session-Id"].encode() not in b"".join(collector.raw)


async def test_stdio_message_contains_its_trace(config: Path, collector: Collector) -> None:
    given = fresh()
    async with serving(config, "--stdio", environment=sent_to(collector.url)) as daemon:
        await daemon.ask(
            modern_request("tools/call", {"name": "child", "arguments": {}, "_meta": {"traceparent": given}})
        )
        [served] = await spans_of(collector, given, "tools/call child")
    assert served.parent_id == PARENT
    assert served.attributes["network.transport"] == "pipe"
    assert "client.address" not in served.attributes


async def test_cancelled_call_ends_its_spans(traced: Daemon, collector: Collector, http: aiohttp.ClientSession) -> None:
    given = fresh()
    calling = asyncio.create_task(call(traced, http, "sleeps", traceparent=given))
    async with asyncio.timeout(15):
        while (await status_of(traced, http))["children"] == 0:
            await asyncio.sleep(0.01)
    calling.cancel()
    spans = await spans_of(collector, given, "tools/call sleeps", "run", "shell")
    assert [span.attributes["error.type"] for span in spans] == ["cancelled"] * 3


async def test_trace_is_propagated_without_a_collector(
    untraced: Daemon, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    assert (
        await call(untraced, http, "child", traceparent=TRACEPARENT, tracestate="a=1,b=2") == f"{TRACEPARENT} a=1,b=2"
    )
    assert await call(untraced, http, "child", carried={"traceparent": TRACEPARENT}) == TRACEPARENT
    await call(untraced, http, "fetch", traceparent=TRACEPARENT, tracestate="a=1")
    assert upstream.headers[-1]["traceparent"] == TRACEPARENT
    assert upstream.headers[-1]["tracestate"] == "a=1"
    assert await call(untraced, http, "child") == ""
    assert await call(untraced, http, "child", traceparent="nonsense", tracestate="a=1") == ""


async def test_silent_collector_delays_neither_calls_nor_the_exit(config: Path, http: aiohttp.ClientSession) -> None:
    held: list[asyncio.StreamWriter] = []

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with serving(config, environment=sent_to(f"http://127.0.0.1:{port}")) as daemon:
            for _ in range(5):
                assert (await call(daemon, http, "child")).startswith("00-")
            daemon.signal(signal.SIGTERM)
            assert await daemon.exit_code(within=10) == 0
            await daemon.event("the last spans were not sent: the collector does not respond")
    finally:
        for writer in held:
            writer.close()
        server.close()


async def test_last_spans_are_sent_before_the_exit(config: Path, http: aiohttp.ClientSession) -> None:
    async with collecting() as collector:
        environ = {**sent_to(collector.url), "OTEL_BSP_SCHEDULE_DELAY": "600000"}
        async with serving(config, environment=environ) as daemon:
            await call(daemon, http, "child")
            assert collector.spans == []
            daemon.signal(signal.SIGTERM)
            assert await daemon.exit_code() == 0
        assert {span.name for span in collector.spans} == {"tools/call child", "run", "shell"}
