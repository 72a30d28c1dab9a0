"""A client of any revision over any binding. It follows the specification, and validates every received message."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import Final, Protocol

from gateway.json_types import Json, JsonObject
from gateway.wire import meta
from tests.behaviour.cells import Cell
from tests.conformance.wire_schemas import INPUT_REQUIRED, WireSchemas
from tests.protocol.peers import Respond, accept_all

SECONDS: Final = 60.0
NOTHING: Final[Mapping[str, Json]] = MappingProxyType({})
_IDS: Final = count(1)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The response to a request, with its status over HTTP."""

    message: dict[str, Json]
    status: int | None = None

    @property
    def result(self) -> Json:
        assert "result" in self.message, self.message
        return self.message["result"]

    @property
    def error(self) -> Json:
        assert "error" in self.message, self.message
        return self.message["error"]

    @property
    def text(self) -> str:
        """The text of the first content block of a tool result."""
        return str(self.result["content"][0]["text"])


@dataclass(kw_only=True)
class Call:
    """A request, and the messages received for it."""

    id: Json
    method: str
    token: Json
    notifications: list[dict[str, Json]] = field(default_factory=list)
    answered: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self) -> Answer:
        async with asyncio.timeout(SECONDS):
            return await self.answered

    async def notification(self, method: str) -> dict[str, Json]:
        """Return the parameters of the next received notification of this method."""
        return await _take(self.notifications, self.arrived, method)

    def seen(self, method: str) -> list[Json]:
        """Return the parameters of all received notifications of this method."""
        return [message["params"] for message in self.notifications if message["method"] == method]


class Wire(Protocol):
    """The transport of a client's messages."""

    async def send(self, message: JsonObject, call: Call | None) -> None: ...
    async def leave(self, call: Call) -> None:
        """Close the stream of the response."""

    async def raw(self, body: bytes) -> "Answer":
        """Send any bytes, and return the response."""


class Client:
    """A client: with the legacy era over HTTP, one session; over stdio, the peer of one process."""

    def __init__(self, cell: Cell, schemas: WireSchemas | None) -> None:
        self.cell: Final = cell
        self.problems: Final[list[str]] = []
        """Return the errors of received messages."""
        self.envelope: Final[dict[str, Json]] = _envelope(cell.revision) if cell.is_modern else {}
        """Members of `_meta` in each request."""
        self.headers: Final[dict[str, str | None]] = {}
        """Overrides of header fields. None omits a field."""
        self.initialized: JsonObject = {}
        """The result of `initialize`."""
        self.respond: Respond = accept_all
        self.asked: Final[list[JsonObject]] = []
        """All requests of the server, in order."""
        self._replying: Final[set[asyncio.Task[None]]] = set()
        self._schemas: Final = schemas
        self._calls: Final[list[Call]] = []
        self._unasked: Final[list[dict[str, Json]]] = []
        self._arrived: Final = asyncio.Event()
        self.wire: Wire

    async def start(self, method: str, params: JsonObject = NOTHING, *, request_id: Json = None) -> Call:
        """Send a request."""
        fields = {**self.envelope, **params.get(meta.META, {})}
        message_params = {**params, meta.META: fields} if fields else dict(params)
        call = Call(
            id=next(_IDS) if request_id is None else request_id, method=method, token=fields.get("progressToken")
        )
        self._calls.append(call)
        message = {"jsonrpc": "2.0", "id": call.id, "method": method}
        await self.wire.send({**message, "params": message_params} if message_params else message, call)
        return call

    async def ask(self, method: str, params: JsonObject = NOTHING, *, request_id: Json = None) -> Answer:
        return await (await self.start(method, params, request_id=request_id)).answer()

    async def call(self, tool: str, **arguments: Json) -> Answer:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments})

    async def converse(self, method: str, params: JsonObject) -> Answer:
        """Send a request, respond to the server's requests as the era requires, and return the response."""
        given = dict(params)
        while (answer := await self.ask(method, given)).message.get("result", {}).get("resultType") == INPUT_REQUIRED:
            given = {**params, **self._answers(answer.result)}
        return answer

    async def begin(self, tool: str, *, token: Json = None, **arguments: Json) -> Call:
        """Call a tool with a progress token."""
        fields = {} if token is None else {meta.META: {"progressToken": token}}
        return await self.start("tools/call", {"name": tool, "arguments": arguments, **fields})

    async def notify(self, method: str, params: JsonObject = NOTHING) -> None:
        message = {"jsonrpc": "2.0", "method": method}
        await self.wire.send({**message, "params": dict(params)} if params else message, None)

    async def cancel(self, call: Call) -> None:
        """Cancel a request as the revision and the binding require."""
        if self.cell.is_modern and self.cell.is_http:
            await self.wire.leave(call)
        else:
            await self.notify("notifications/cancelled", {"requestId": call.id})

    async def notification(self, method: str) -> dict[str, Json]:
        """Return the parameters of the next notification of this method that belongs to no request."""
        return await _take(self._unasked, self._arrived, method)

    def forget(self) -> None:
        """Discard all received notifications."""
        self._unasked.clear()

    def received(self, method: str) -> list[Json]:
        return [message.get("params", {}) for message in self._unasked if message["method"] == method]

    def take(self, message: dict[str, Json], call: Call | None, status: int | None = None) -> None:
        """Handle a received message. `call` is its request, if the binding can determine it."""
        call = call or self._call_of(message)
        if "method" not in message and call is not None:
            self._check(message, call.method)
            self._calls.remove(call)
            if not call.answered.done():
                call.answered.set_result(Answer(message=message, status=status))
            return
        self._check(message, None)
        assert "method" in message, message
        if "id" in message:
            self._reply_to(message)
            return
        (self._unasked if call is None else call.notifications).append(message)
        (self._arrived if call is None else call.arrived).set()

    async def raw(self, body: bytes) -> Answer:
        """Send any bytes, and return the response."""
        answer = await self.wire.raw(body)
        self._check(answer.message, None)
        return answer

    def _reply_to(self, question: JsonObject) -> None:
        assert not self.cell.is_modern, "the revision does not support requests of the server"
        self.asked.append(question)
        result = self.respond(question["method"], question.get("params", {}))
        replying = asyncio.create_task(self.wire.send({"jsonrpc": "2.0", "id": question["id"], "result": result}, None))
        self._replying.add(replying)
        replying.add_done_callback(self._replying.discard)

    def _answers(self, result: JsonObject) -> dict[str, Json]:
        """Return the additional parameters of a retried request."""
        self.asked.extend(result["inputRequests"].values())
        given = {key: self.respond(each["method"], each["params"]) for key, each in result["inputRequests"].items()}
        return {"inputResponses": given, **{key: value for key, value in result.items() if key == "requestState"}}

    def _check(self, message: dict[str, Json], answers: str | None) -> None:
        if self._schemas is not None:
            found = self._schemas.problems(self.cell.revision, message, answers=answers)
            self.problems.extend(f"{problem} in {message}" for problem in found)

    def _call_of(self, message: dict[str, Json]) -> Call | None:
        if "method" not in message:
            return next((call for call in self._calls if _same(call.id, message["id"])), None)
        params = message.get("params", {})
        fields = params.get(meta.META, {})
        for call in self._calls:
            if message["method"] == "notifications/progress" and _same(call.token, params["progressToken"]):
                return call
            if _same(call.id, fields.get(meta.META_SUBSCRIPTION_ID)):
                return call
            if message["method"] == "notifications/message" and call.method == "tools/call":
                return call  # the message does not contain the id of its request
        return None


def _envelope(revision: str) -> dict[str, Json]:
    return {
        meta.META_PROTOCOL_VERSION: revision,
        meta.META_CLIENT_CAPABILITIES: {},
        meta.META_CLIENT_INFO: {"name": "behaviour", "version": "1"},
    }


def initialize_params(revision: str, capabilities: JsonObject = NOTHING) -> dict[str, Json]:
    return {
        "protocolVersion": revision,
        "capabilities": dict(capabilities),
        "clientInfo": {"name": "behaviour", "version": "1"},
    }


async def listed(client: Client, method: str, member: str) -> list[Json]:
    """Return all entries of a list, reading it page by page."""
    entries: list[Json] = []
    params: dict[str, Json] = {}
    for _ in range(100):
        result = (await client.ask(method, params)).result
        entries += result[member]
        if "nextCursor" not in result:
            return entries
        params = {"cursor": result["nextCursor"]}
    raise AssertionError("the list is endless")


def named(entries: Sequence[Json], name: str) -> Json:
    return next(entry for entry in entries if entry["name"] == name)


def _same(one: Json, other: Json) -> bool:
    """Return whether two ids or tokens are equal, including their type."""
    return one is not None and type(one) is type(other) and one == other


async def _take(messages: list[dict[str, Json]], arrived: asyncio.Event, method: str) -> dict[str, Json]:
    async with asyncio.timeout(SECONDS):
        while True:
            for message in messages:
                if message["method"] == method:
                    messages.remove(message)
                    params: dict[str, Json] = message.get("params", {})
                    return params
            arrived.clear()
            await arrived.wait()
