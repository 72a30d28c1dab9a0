"""A real HTTP listener over a real dispatcher, with a handful of tools whose course a test decides."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Final

import aiohttp
import orjson

from gateway.access.authenticator import Authenticator
from gateway.app.documents import Documents
from gateway.catalog.primitives import Catalog, Tool
from gateway.catalog.store import CatalogStore
from gateway.config.address import Address
from gateway.config.auth import Auth
from gateway.config.secrets import Redactor
from gateway.config.server import Shares
from gateway.executors.http.clients import HttpClients
from gateway.executors.invocation import Blocks, Invocation, Outcome, ToolResult
from gateway.executors.services import running_services
from gateway.json_types import Json, JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.telemetry.health import Health
from gateway.transports.admissions import Admissions
from gateway.transports.event_stream import Pace
from gateway.transports.front_door import FrontDoor
from gateway.transports.guard import Guard
from gateway.transports.http_app import HttpApp
from gateway.transports.http_sse import HttpSse
from gateway.transports.incoming import Bounds
from gateway.transports.listener.http_connection import Threshold
from gateway.transports.listener.http_listener import HttpListener
from gateway.transports.own_paths import OwnPaths
from gateway.transports.ration import Ration
from gateway.transports.resource_metadata import ResourceMetadata
from gateway.transports.streamable_http.kept_streams import ReplayBounds
from gateway.transports.streamable_http.sessions import Sessions
from gateway.transports.streamable_http.streamable_http import StreamableHttp
from gateway.transports.trusted_proxies import TrustedProxies

BOTH: Final = "application/json, text/event-stream"
MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
NAME_FORM: Final = {"type": "object", "properties": {"name": {"type": "string"}}}
ENVELOPE: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass
class Course:
    """What the tools do, and what became of them."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    finished: int = 0
    orders: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """What `obey` does next."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Header fields of the last call of `echo`, as far as a tool may know them."""
    problems: list[str] = field(default_factory=list)
    """What the next reload finds."""

    async def reload(self) -> JsonObject:
        return {"generation": 2, "problems": self.problems}

    async def echo(self, invocation: Invocation) -> Outcome:
        self.fields = invocation.headers
        return said(str(invocation.arguments.get("text", "")))

    async def report(self, invocation: Invocation) -> Outcome:
        """Say how far it is, three times."""
        for step in (1, 2, 3):
            await invocation.context.progress(step, 3)
        return said("done")

    async def wait(self, _invocation: Invocation) -> Outcome:
        """Go on until released."""
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self.finished += 1
        return said("released")

    async def obey(self, invocation: Invocation) -> Outcome:
        """Do one order after the other; what is none is the answer."""
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
        """Report without end and without a pause."""
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


class NoMetrics:
    """Of a daemon that measures nothing."""

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        return b"", f"text/plain; asked={accept!r}"


class NoLogs:
    """Of a daemon that writes nothing down."""

    level = "error"

    def set_level(self, level: str) -> None:
        raise ValueError(level)


def said(text: str) -> Blocks:
    return Blocks(content=({"type": "text", "text": text},))


class Anything:
    """Arguments that are taken as they are."""

    def prepare(self, arguments: JsonObject) -> JsonObject:
        return arguments


class AsItIs:
    """Blocks as a tool's result."""

    def shape(self, outcome: Outcome, invocation: Invocation) -> ToolResult:
        assert isinstance(outcome, Blocks)
        return ToolResult(content=outcome.content)


@dataclass(frozen=True)
class Played:
    """Runs one of the course's functions."""

    function: Callable[[Invocation], Awaitable[Outcome]]

    async def execute(self, invocation: Invocation) -> Outcome:
        return await self.function(invocation)


def catalog(course: Course) -> Catalog:
    tools = {
        name: Tool(
            name=name,
            definition={"name": name, "inputSchema": {"type": "object"}},
            timeout=timedelta(seconds=60),
            concurrency=100,
            queue=100,
            executor=Played(getattr(course, name)),
            arguments=Anything(),
            result=AsItIs(),
        )
        for name in ("echo", "report", "wait", "obey", "flood")
    }
    return Catalog(
        generation=1,
        server_info={"name": "house", "version": "1"},
        instructions=None,
        page_size=100,
        cache_ttl=timedelta(seconds=5),
        tools=tools,
        redactor=Redactor(),
    )


@asynccontextmanager
async def dispatching(course: Course) -> AsyncIterator[Dispatcher]:
    async with running_services() as services:
        yield Dispatcher(store=CatalogStore(catalog(course)), services=services, secret_key=b"not a secret")


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
        """Messages of an event stream."""
        data = (line.removeprefix("data: ") for line in self.text.split("\n") if line.startswith("data: "))
        return [orjson.loads(each) for each in data if each]


@dataclass(kw_only=True)
class House:
    """The listener, and a client of it."""

    course: Course
    dispatcher: Dispatcher
    sessions: Sessions
    streams: Ration
    admissions: Admissions
    authenticator: Authenticator
    mcp: StreamableHttp
    sse: HttpSse
    health: Health
    address: Address
    client: aiohttp.ClientSession

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
        """A request of 2026-07-28; `fields` are header fields with `_` for `-`."""
        return await self.send(modern_request(method, params), modern_headers(method, params, **fields))

    def adopt(self, auth: Auth | None) -> None:
        """Go by this section from now on, as a reload does."""
        self.authenticator.adopt(auth)
        self.sessions.review(self.authenticator.renewed, identified=self.dispatcher.identified)
        self.admissions.review(self.authenticator.renewed)

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


def initialize_request(revision: str = LEGACY, **capabilities: Json) -> dict[str, Json]:
    client_info = {"name": "test", "version": "1"}
    params = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": client_info}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def legacy_request(method: str, params: JsonObject = MappingProxyType({}), *, request_id: Json = 1) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": dict(params)}


def call(tool: str, *, request_id: Json = 1, token: Json = None, **arguments: Json) -> dict[str, Json]:
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return legacy_request("tools/call", {"name": tool, "arguments": arguments, **meta}, request_id=request_id)


def modern_request(method: str, params: JsonObject = MappingProxyType({}), *, request_id: Json = 1) -> dict[str, Json]:
    meta = {**ENVELOPE, **params.get("_meta", {})}
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": meta}}


def modern_headers(method: str, params: JsonObject, **fields: str) -> dict[str, str]:
    name = {"Mcp-Name": params["name"]} if "name" in params else {}
    standard = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **name}
    return standard | {key.replace("_", "-"): value for key, value in fields.items()}


@asynccontextmanager
async def house(
    *,
    keepalive: float = 60,
    patience: float = 5,
    max_body: int = 1_000_000,
    session_limit: int = 100,
    stream_limit: int = 100,
    session_ttl: float = 3600,
    guard: Guard | None = None,
    proxies: TrustedProxies = TrustedProxies(public_url="http://127.0.0.1/ops"),  # noqa: B008 - does not change
    replay: ReplayBounds = ReplayBounds(),  # noqa: B008 - frozen
    auth: Auth | None = None,
    receive_seconds: float = 30,
    threshold: Threshold | None = None,
) -> AsyncIterator[House]:
    course = Course()
    async with AsyncExitStack() as stack:
        dispatcher = await stack.enter_async_context(dispatching(course))
        sessions = Sessions(
            ration=Ration(Shares(in_all=session_limit), noun="sessions", default=10_000),
            ttl=timedelta(seconds=session_ttl),
            replay=replay,
        )
        streams = Ration(Shares(in_all=stream_limit), noun="streams", default=10_000)
        pace = Pace(keepalive=keepalive, patience=patience)
        bounds = Bounds(max_body=max_body, max_depth=64, pace=pace, receive_seconds=receive_seconds)
        admissions = Admissions()
        authenticator = Authenticator(Documents(await stack.enter_async_context(HttpClients())))
        stack.push_async_callback(authenticator.close)
        authenticator.adopt(auth)
        mcp = StreamableHttp(
            dispatcher=dispatcher, sessions=sessions, streams=streams, admissions=admissions, bounds=bounds
        )
        health = Health({"sessions": lambda: len(sessions), "problems": list})
        address = Address("127.0.0.1", 0)
        sse = HttpSse(dispatcher=dispatcher, streams=streams, admissions=admissions, bounds=bounds)
        guard = guard or Guard(address=address)
        metadata = ResourceMetadata(authenticator=authenticator, path="/mcp", others=("/sse",))
        door = FrontDoor(guard=guard, proxies=proxies, authenticator=authenticator, metadata=metadata)
        own = OwnPaths(health=health, metrics=NoMetrics(), logs=NoLogs(), reload=course.reload, config=_no_config)
        app = HttpApp(door=door, mcp=mcp, sse=sse, path="/mcp", own=own, prefix=proxies.prefix)
        listener = HttpListener(app.application(), address=address, threshold=threshold)
        await listener.start()
        authenticator.answer_to([f"http://{listener.address}/mcp", f"http://{listener.address}/sse"])
        stack.push_async_callback(listener.close)
        await stack.enter_async_context(sessions)
        health.become_ready()
        client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15))
        await stack.enter_async_context(client)
        yield House(
            course=course,
            dispatcher=dispatcher,
            sessions=sessions,
            streams=streams,
            admissions=admissions,
            authenticator=authenticator,
            mcp=mcp,
            sse=sse,
            health=health,
            address=listener.address,
            client=client,
        )
