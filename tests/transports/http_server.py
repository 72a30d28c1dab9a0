"""An HTTP server over a real dispatcher, with a few tools that tests control."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Final

import aiohttp
import orjson
from msgspec.structs import replace

from gateway.access.authenticator import Authenticator
from gateway.bounded_map import BoundedMap
from gateway.catalog.catalog import Catalog
from gateway.catalog.compile.arguments import compile_arguments
from gateway.catalog.primitives import Tool
from gateway.catalog.store import CatalogStore
from gateway.config.diagnostics.problems import Problems
from gateway.config.models import definitions
from gateway.config.models.address import Address
from gateway.config.models.auth import Auth
from gateway.config.models.server import Limits, Listen, Quota
from gateway.config.secrets.redactor import Redactor
from gateway.executors.invocation import Blocks, Explanation, Invocation, Outcome, ToolResult
from gateway.executors.shared_services import running_services
from gateway.json_types import Json, JsonObject
from gateway.net.clients import HttpClients
from gateway.net.server_metadata import fetch_json, issuer_sender, post
from gateway.protocol.dispatcher import Dispatcher
from gateway.state.keys import SigningKeys, random_keys
from gateway.state.session_store import SessionRecord
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.transports.http.active_requests import ActiveRequests
from gateway.transports.http.admin_api import AdminApi
from gateway.transports.http_server import HttpServer, ServerLimits
from gateway.transports.http_sse import HttpSse
from gateway.transports.listener.http_connection import ConnectionLimits
from gateway.transports.listener.http_listener import ListenAddress
from gateway.transports.quota import RequestLimits, ResourceQuota, WriteQuota
from gateway.transports.sse.session_streams import ReplayBounds
from gateway.transports.streamable_http.endpoint import StreamableHttp
from gateway.transports.streamable_http.sessions import SessionPersistence, Sessions
from tests.messages import (
    BOTH,
    LEGACY,
    initialize_request,
    legacy_request,
    modern_headers,
    modern_request,
)

NAME_FORM: Final = {"type": "object", "properties": {"name": {"type": "string"}}}


@dataclass
class ToolControl:
    """Controls and records the tools' behaviour."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    finished: int = 0
    orders: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """The next orders of `obey`."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """The headers that the last call of `echo` saw."""
    problems: list[str] = field(default_factory=list)
    """The problems of the next reload."""

    async def reload(self) -> JsonObject:
        return {"generation": 2, "problems": self.problems}

    async def echo(self, invocation: Invocation) -> Outcome:
        self.fields = invocation.call.caller.headers
        return said(str(invocation.arguments.get("text", "")))

    async def large(self, invocation: Invocation) -> Outcome:
        return said("x" * int(invocation.arguments["size"]))

    async def report(self, invocation: Invocation) -> Outcome:
        """Report progress three times."""
        for step in (1, 2, 3):
            await invocation.context.progress(step, 3)
        return said("done")

    async def wait(self, _invocation: Invocation) -> Outcome:
        """Wait until released."""
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self.finished += 1
        return said("released")

    async def obey(self, invocation: Invocation) -> Outcome:
        """Execute orders. Any other text is the result."""
        context, step = invocation.context, 0
        self.started.set()
        while True:
            match await self.orders.get():
                case "report":
                    step += 1
                    await context.progress(step)
                case "close":
                    await context.close_stream(retry_ms=20)
                case "ask":
                    answer = await context.elicit("name", "Your name?", NAME_FORM)
                    return said(f"{answer.action} {answer.content}")
                case text:
                    return said(text)

    async def flood(self, invocation: Invocation) -> Outcome:
        """Report progress forever without a pause."""
        self.started.set()
        step = 0
        try:
            while True:
                step += 1
                await invocation.context.progress(step, message="x" * 50_000)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


async def _no_config() -> JsonObject:
    return {}


async def _no_metrics(accept: str) -> tuple[bytes, str]:
    return b"", f"text/plain; asked={accept!r}"


class NoTasks:
    """A daemon without tasks."""

    async def listed(self) -> JsonObject:
        return {"tasks": [], "counts": {}}

    async def shown(self, task_id: str) -> JsonObject | None:
        return None

    async def cancel(self, task_id: str) -> JsonObject | None:
        return None


def said(text: str) -> Blocks:
    return Blocks(content=({"type": "text", "text": text},))


def as_it_is(outcome: Outcome, _invocation: Invocation) -> ToolResult:
    """Return blocks as a tool result."""
    assert isinstance(outcome, Blocks)
    return ToolResult(content=outcome.content)


@dataclass(frozen=True)
class ControlledExecutor:
    """Runs a function of `ToolControl`."""

    function: Callable[[Invocation], Awaitable[Outcome]]

    def explain(self, invocation: Invocation) -> Explanation:
        raise NotImplementedError

    async def execute(self, invocation: Invocation) -> Outcome:
        return await self.function(invocation)


def catalog(control: ToolControl) -> Catalog:
    config = definitions.Tool.model_validate({"content": "x", "input_schema": {"type": "object"}})
    anything = compile_arguments(config, Problems())
    tools = {
        name: Tool(
            name=name,
            definition={"name": name, "inputSchema": {"type": "object"}},
            timeout=timedelta(seconds=60),
            concurrency=100,
            queue=100,
            executor=ControlledExecutor(getattr(control, name)),
            arguments=anything,
            result=as_it_is,
        )
        for name in ("echo", "large", "report", "wait", "obey", "flood")
    }
    return Catalog(
        generation=1,
        server_info={"name": "http_server", "version": "1"},
        instructions=None,
        page_size=100,
        cache_ttl=timedelta(seconds=5),
        tools=tools,
        redactor=Redactor(),
    )


@asynccontextmanager
async def dispatching(control: ToolControl, store: CatalogStore | None = None) -> AsyncIterator[Dispatcher]:
    async with running_services() as services:
        yield Dispatcher(
            store=store or CatalogStore(catalog(control)), services=services, keys=SigningKeys([b"not a secret"])
        )


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Json:
        return orjson.loads(self.text)

    @property
    def events(self) -> list[Json]:
        """The messages of an event stream."""
        data = (line.removeprefix("data: ") for line in self.text.split("\n") if line.startswith("data: "))
        return [orjson.loads(each) for each in data if each]


@dataclass(kw_only=True)
class RunningServer:
    """A running server and its client."""

    control: ToolControl
    server: HttpServer
    dispatcher: Dispatcher
    authenticator: Authenticator
    health: Health
    client: aiohttp.ClientSession

    @property
    def address(self) -> Address:
        assert self.server.address is not None
        return self.server.address

    @property
    def sessions(self) -> Sessions:
        return self.server.sessions

    @property
    def streams(self) -> ResourceQuota:
        return self.server.limits.streams

    @property
    def active_requests(self) -> ActiveRequests:
        return self.server.active_requests

    @property
    def mcp(self) -> StreamableHttp:
        return self.server.streamable_http

    @property
    def sse(self) -> HttpSse:
        assert self.server.http_sse is not None
        return self.server.http_sse

    @property
    def url(self) -> str:
        return f"http://{self.address}/mcp"

    async def send(
        self,
        body: Json | bytes,
        headers: Mapping[str, str] = MappingProxyType({}),
        *,
        method: str = "POST",
        path: str = "/mcp",
    ) -> Answer:
        fields = {"Accept": BOTH, **({"Content-Type": "application/json"} if method == "POST" else {}), **headers}
        data = body if isinstance(body, bytes | None) else orjson.dumps(body)
        url = f"http://{self.address}{path}"
        async with self.client.request(method, url, data=data, headers=fields) as response:
            return Answer(status=response.status, headers=response.headers, text=await response.text())

    async def modern(self, method: str, params: JsonObject = MappingProxyType({}), **fields: str) -> Answer:
        """Send a request of 2026-07-28; `fields` are headers with `_` for `-`."""
        return await self.send(modern_request(method, params), modern_headers(method, params, **fields))

    def adopt(self, auth: Auth | None) -> None:
        """Apply this section, as a reload does."""
        self.authenticator.configure(auth)
        self.server.revalidate(self.authenticator.revalidate)

    async def initialize(
        self, revision: str = LEGACY, *, headers: Mapping[str, str] = MappingProxyType({}), **capabilities: Json
    ) -> str:
        """Open a session and return its id."""
        answer = await self.send(initialize_request(revision, **capabilities), headers)
        assert answer.status == 200, answer
        assert answer.json["result"]["protocolVersion"] == revision
        session_id = answer.headers["Mcp-Session-Id"]
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self.send(done, {"Mcp-Session-Id": session_id, **headers})).status == 202
        return session_id


def call(tool: str, *, request_id: Json = 1, token: Json = None, **arguments: Json) -> dict[str, Json]:
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return legacy_request("tools/call", {"name": tool, "arguments": arguments, **meta}, request_id=request_id)


class MemorySessionStore:
    is_shared = False
    has_all_records = False

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._records: BoundedMap[str, SessionRecord] = BoundedMap(1000, clock=clock)

    async def load(self, nonce: str) -> SessionRecord | None:
        return self._records.get(nonce)

    async def save(self, nonce: str, record: SessionRecord, *, before: SessionRecord | None = None) -> None:
        del before
        self.save_soon({nonce: record}, before={})

    def save_soon(self, records: Mapping[str, SessionRecord], *, before: Mapping[str, SessionRecord]) -> None:
        del before
        for nonce, record in records.items():
            if (known := self._records.get(nonce)) is None or not known.is_ended:
                self._records.put(nonce, record, expires=record.expires)

    def release(self, nonce: str) -> None: ...

    def forget_expired(self) -> None: ...


def in_memory() -> SessionPersistence:
    clock = time.time
    return SessionPersistence(keys=random_keys(), store=MemorySessionStore(clock=clock), clock=clock)


@asynccontextmanager
async def http_server(  # shorter defaults than the daemon's, for fast tests
    *,
    keepalive: float = 60,
    write_timeout: float = 5,
    max_body: int = 1_000_000,
    session_limit: int = 100,
    stream_limit: int = 100,
    session_ttl: float = 3600,
    receive_seconds: float = 30,
    public_url: str | None = "http://127.0.0.1/ops",
    allowed_hosts: Sequence[str] | None = None,
    trusted_proxies: Sequence[str] = (),
    persistence: SessionPersistence | None = None,
    catalog_store: CatalogStore | None = None,
    replay: ReplayBounds = ReplayBounds(),  # noqa: B008 - frozen
    auth: Auth | None = None,
    connection_limits: ConnectionLimits | None = None,
    quota: WriteQuota | None = None,
    missing: Sequence[str] = (),
) -> AsyncIterator[RunningServer]:
    """Run the daemon's `HttpServer` with tools that tests control."""
    listen = Listen(
        max_body=max_body,
        session_ttl=timedelta(seconds=session_ttl),
        public_url=public_url,
        allowed_hosts=None if allowed_hosts is None else list(allowed_hosts),
        trusted_proxies=list(trusted_proxies),
    )
    limits = ServerLimits.of(listen, Limits(sessions=Quota(in_all=session_limit), streams=Quota(in_all=stream_limit)))
    limits = replace(
        limits,
        requests=RequestLimits(
            max_body=max_body,
            receive_seconds=receive_seconds,
            keepalive=keepalive,
            write_timeout=write_timeout,
            quota=limits.requests.quota if quota is None else quota,
        ),
        connections=connection_limits or limits.connections,
        replay=replay,
    )
    control = ToolControl()
    async with AsyncExitStack() as stack:
        dispatcher = await stack.enter_async_context(dispatching(control, catalog_store))
        sender = issuer_sender(await stack.enter_async_context(HttpClients()))
        authenticator = Authenticator(partial(fetch_json, sender), post=partial(post, sender), key=b"of this test")
        stack.push_async_callback(authenticator.close)
        authenticator.configure(auth)
        health = Health(missing=lambda: missing)
        server = HttpServer(
            listen,
            limits,
            dispatcher=dispatcher,
            authenticator=authenticator,
            persistence=persistence or in_memory(),
        )
        admin_api = AdminApi(
            health=health,
            status=lambda: {"state": health.state, "sessions": len(server.sessions)},
            metrics=_no_metrics,
            logs=Logs(level="error", style=None, mask=str),
            reload=control.reload,
            config=_no_config,
            tasks=NoTasks(),
            about=lambda _: {"api": 1},
        )
        await server.open(stack, ListenAddress(address=Address("127.0.0.1", 0)), admin_api=admin_api)
        health.become_ready()
        client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15))
        await stack.enter_async_context(client)
        yield RunningServer(
            control=control,
            server=server,
            dispatcher=dispatcher,
            authenticator=authenticator,
            health=health,
            client=client,
        )
