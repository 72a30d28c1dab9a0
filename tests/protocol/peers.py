"""Clients of both eras in this process, which respond to input requests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

import orjson
import pytest

from gateway.access.identity import ANONYMOUS, Identity
from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.json_types import Json, JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding, Caller
from gateway.protocol.session import Session
from gateway.wire import meta
from gateway.wire.jsonrpc import Notification, Request, Response
from tests.waiting import until

ERAS: Final = pytest.mark.parametrize("era", ["legacy", "modern"])
EVERYTHING: Final[JsonObject] = MappingProxyType(
    {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
)
SECONDS: Final = 10

Respond = Callable[[str, JsonObject], Json]
"""Returns the response to an input request, or raises `NoResponse`."""


class NoResponse(Exception):  # noqa: N818 - not an error
    """The client does not respond."""


def accept_all(method: str, params: JsonObject) -> Json:
    """Accept every request."""
    match method:
        case "elicitation/create":
            fields = params.get("requestedSchema", {}).get("properties", {})
            return {"action": "accept", "content": {name: _filled_in(field) for name, field in fields.items()}}
        case "sampling/createMessage":
            text = params["messages"][-1]["content"]["text"]
            return {"role": "assistant", "content": {"type": "text", "text": f"echo {text}"}, "model": "parrot"}
    return {"roots": [{"uri": "file:///home/ada", "name": "home"}]}


def silent(_method: str, _params: JsonObject) -> Json:
    """Respond to no request."""
    raise NoResponse


def _filled_in(field: JsonObject) -> Json:
    if "default" in field:
        return field["default"]
    if "enum" in field:
        return field["enum"][0]
    if field["type"] == "array":
        return field["items"]["enum"][:1]
    return {"boolean": True, "integer": 7, "number": 7.5}.get(field["type"], "Ada")


class Peer(Protocol):
    asked: list[JsonObject]
    """All received requests, in order."""

    async def request(self, method: str, params: JsonObject) -> dict[str, Json]:
        """Send a request, respond to input requests, and return the response."""


async def call(peer: Peer, tool: str, /, **arguments: Json) -> dict[str, Json]:
    """Return the result of a call after any number of input requests."""
    message = await peer.request("tools/call", {"name": tool, "arguments": arguments})
    assert "result" in message, message
    result: dict[str, Json] = message["result"]
    return result


async def text(peer: Peer, tool: str, /, **arguments: Json) -> str:
    result = await call(peer, tool, **arguments)
    return f"{'error: ' if result.get('isError') else ''}{result['content'][0]['text']}"


class ModernPeer:
    """A modern client, which retries with responses (2026-07-28)."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        respond: Respond = accept_all,
        capabilities: JsonObject = EVERYTHING,
        principal: str | None = None,
        identity: Identity | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        view: str | None = None,
    ) -> None:
        self._dispatcher: Final = dispatcher
        self.respond = respond
        self.capabilities = capabilities
        identity = identity or Identity(principal=principal)
        self.caller: Final = Caller(binding=Binding.MEMORY, identity=identity, headers=headers, view=view)
        self.asked: list[JsonObject] = []
        self.sent: Final[list[JsonObject]] = []
        """The messages before responses."""
        self._ids: Final = count(1)

    async def send(self, message: JsonObject) -> bool:
        assert "id" not in message, "the revision does not support requests to the client"
        self.sent.append(message)
        return True

    async def close_stream(self, retry_ms: int | None) -> None:
        """Do nothing."""

    async def once(self, method: str, params: JsonObject) -> dict[str, Json]:
        """Send a request without retries."""
        fields = {
            meta.META_PROTOCOL_VERSION: "2026-07-28",
            meta.META_CLIENT_CAPABILITIES: dict(self.capabilities),
            **params.get(meta.META, {}),
        }
        request = Request(next(self._ids), method, {**params, meta.META: fields})
        async with asyncio.timeout(SECONDS):
            reply = await self._dispatcher.answer(request, self)
        message: dict[str, Json] = orjson.loads(reply.body or b"{}")
        return message

    async def request(self, method: str, params: JsonObject) -> dict[str, Json]:
        for _ in range(10):
            message = await self.once(method, params)
            result = message.get("result", {})
            if result.get("resultType") != "input_required":
                return message
            params = {**params, **self.answers(result)}
        raise AssertionError("the questions are endless")

    def answers(self, result: JsonObject) -> dict[str, Json]:
        """Return the parameters of a retry."""
        given: dict[str, Json] = {}
        for key, question in result["inputRequests"].items():
            self.asked.append(question)
            given[key] = self.respond(question["method"], question["params"])
        return {"inputResponses": given, **{k: v for k, v in result.items() if k == "requestState"}}


class LegacyPeer:
    """A legacy client, which responds to requests of the server during a call."""

    def __init__(
        self, dispatcher: Dispatcher, *, respond: Respond = accept_all, identity: Identity = ANONYMOUS
    ) -> None:
        self._dispatcher: Final = dispatcher
        self.respond = respond
        self.receives = True
        """Whether messages before responses arrive."""
        self.caller = Caller(binding=Binding.MEMORY, identity=identity)
        self.asked: list[JsonObject] = []
        self.questions: Final[asyncio.Queue[JsonObject]] = asyncio.Queue()
        """The received requests, for tests that wait for one."""
        self.sent: Final[list[JsonObject]] = []
        self._ids: Final = count(1)
        self.session: Session

    async def open(self, revision: str = "2025-11-25", capabilities: JsonObject = EVERYTHING) -> "LegacyPeer":
        params = {"protocolVersion": revision, "capabilities": dict(capabilities), "clientInfo": {}}
        reply = await self._dispatcher.answer(Request(0, "initialize", params), self)
        assert reply.session is not None
        self.session = reply.session
        return self

    async def send(self, message: JsonObject) -> bool:
        if "id" not in message or not self.receives:
            self.sent.append(message)
            return self.receives
        self.asked.append({"method": message["method"], "params": message["params"]})
        self.questions.put_nowait(message)
        with suppress(NoResponse):
            await self.answer(message["id"], result=self.respond(message["method"], message["params"]))
        return True

    async def close_stream(self, retry_ms: int | None) -> None:
        """Do nothing."""

    async def answer(self, request_id: Json, **response: Json) -> None:
        await self._dispatcher.answer(Response(request_id, **response), self, self.session)

    async def notify(self, method: str, params: JsonObject) -> None:
        await self._dispatcher.answer(Notification(method, params), self, self.session)

    async def request(self, method: str, params: JsonObject) -> dict[str, Json]:
        request = Request(next(self._ids), method, params)
        async with asyncio.timeout(SECONDS):
            reply = await self._dispatcher.answer(request, self, self.session)
        message: dict[str, Json] = orjson.loads(reply.body or b"{}")
        return message


class LocalGateway:
    """A gateway and its clients."""

    def __init__(self, gateway: Gateway, folder: Path) -> None:
        self.gateway: Final = gateway
        self.folder: Final = folder

    @property
    def dispatcher(self) -> Dispatcher:
        return self.gateway.app.core.dispatcher

    def modern(self, **given: Any) -> ModernPeer:
        return ModernPeer(self.dispatcher, **given)

    async def legacy(
        self,
        *,
        revision: str = "2025-11-25",
        respond: Respond = accept_all,
        identity: Identity = ANONYMOUS,
        **given: Any,
    ) -> LegacyPeer:
        return await LegacyPeer(self.dispatcher, respond=respond, identity=identity).open(revision, **given)

    async def of(self, era: str, *, respond: Respond = accept_all, capabilities: JsonObject = EVERYTHING) -> Peer:
        if era == "modern":
            return self.modern(respond=respond, capabilities=capabilities)
        return await self.legacy(respond=respond, capabilities=capabilities)

    async def edit(self, old: str, new: str, *, file: str = "config.yaml") -> None:
        """Change a file and reload."""
        path = self.folder / file
        before = path.read_text()
        assert old in before
        path.write_text(before.replace(old, new))
        problems = (await self.gateway.app.reloads.reload())["problems"]
        assert problems == [], problems

    async def quiet(self) -> None:
        """Wait until nothing is running, waiting or being cleaned up."""
        slots = self.dispatcher.concurrency
        await until(lambda: (slots.running, slots.waiting) == (0, 0))


@asynccontextmanager
async def serve_folder(folder: Path) -> AsyncIterator[LocalGateway]:
    """Serve the configuration of a folder."""
    settings = read_settings({"config": folder / "config.yaml", "log_level": "error", "no_watch": True})
    async with Gateway(settings) as gateway:
        yield LocalGateway(gateway, folder)
