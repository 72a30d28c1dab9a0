"""Handles requests and notifications that a server sends."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from gateway.background_tasks import BackgroundTasks
from gateway.errors import ErrorCode, MissingCapabilityError, RpcError
from gateway.json_types import Json, JsonObject
from gateway.upstreams.client.link import Incoming, Unreadable, own_id
from gateway.upstreams.client.relayed_call import QUESTIONS, RelayedCall
from gateway.upstreams.failures import UpstreamError
from gateway.wire import jsonrpc, meta
from gateway.wire.jsonrpc import Notification, Request, RequestId

_LIST_CHANGED: Final = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
MAX_OPEN_REQUESTS: Final = 1000
_MAX_ID_LENGTH: Final = 1024
_Announce = Callable[[str, JsonObject], object]


class Listener(Protocol):
    """Callbacks for events in the sessions with one server."""

    async def session_opened(self, watch: Callable[[frozenset[str]], Awaitable[None]]) -> None:
        """Called before the first request of a session. `watch` subscribes to resources by URI."""

    def lists_changed(self) -> None:
        """Called when a list of the server could have changed."""

    def resource_updated(self, uri: str) -> None: ...
    def unreadable(self, message: Unreadable) -> None: ...


class ServerMessages:
    def __init__(
        self, listener: Listener, *, send: Callable[[JsonObject], Awaitable[None]], tasks: BackgroundTasks
    ) -> None:
        """Handle messages of one session. `send` sends responses to the server, in tasks owned by `tasks`."""
        self.calls: Final[dict[RequestId, RelayedCall]] = {}
        """Open calls by request id, oldest first."""
        self._listener: Final = listener
        self._send: Final = send
        self._tasks: Final = tasks
        self._answering: Final[dict[RequestId, asyncio.Task[None]]] = {}
        self._elicitations: Final[dict[str, _Announce | None]] = {}
        """Functions that notify the client, by elicitation id. None if an elicitation completed too early."""
        self.has_changed_lists = False
        """Whether the server has announced list changes since `Session.take_list_change` was last called."""
        self._sending_roots: asyncio.Task[None] | None = None
        self.wants_roots = False
        """Whether the server has asked for roots outside of a call."""
        self.may_ask = True
        """Whether the server can send requests. Since 2026-07-28, results contain input requests instead."""
        self.acknowledged: Final = asyncio.Event()
        """Set once the server has acknowledged the newest `subscriptions/listen`."""

    def take(self, message: Incoming, during: RequestId | None) -> None:
        if isinstance(message, Request):
            # Ignore requests of a server that sends too many requests or does not read the responses.
            if message.id in self._answering or len(self._answering) >= MAX_OPEN_REQUESTS:
                return
            task = self._tasks.begin(self._answer(message, during), name="answer upstream")
            self._answering[message.id] = task
            if message.method == "roots/list":
                self._sending_roots = task
            task.add_done_callback(lambda _: self._answering.pop(message.id, None))
        elif isinstance(message, Unreadable):
            self._listener.unreadable(message)
        else:
            self._notification(message, during)

    async def roots_sent(self) -> bool:
        """Wait until the server's last `roots/list` request is answered. Return False if there was no such request."""
        telling, self._sending_roots = self._sending_roots, None
        if telling is None:
            return False
        await asyncio.wait([telling])
        return True

    def expect_completion(self, elicitation: Json, call: RelayedCall) -> None:
        """Remember to notify the client of `call` when an elicitation completes (MCP 2025-11-25 client/elicitation)."""
        name = elicitation.get("elicitationId") if isinstance(elicitation, dict) else None
        if isinstance(name, str) and call.announce is not None:
            self._match_completion(name, call.announce)

    def _match_completion(self, name: str, announce: _Announce | None) -> None:
        known = self._elicitations.get(name, announce)
        if (known is None) is (announce is None):
            if len(self._elicitations) < MAX_OPEN_REQUESTS and len(name) <= _MAX_ID_LENGTH:
                self._elicitations[name] = announce
        elif (tell := known or announce) is not None:
            del self._elicitations[name]
            method = "notifications/elicitation/complete"
            notification = {"jsonrpc": jsonrpc.VERSION, "method": method, "params": {"elicitationId": name}}
            tell(f"{method} {name}", notification)

    def _notification(self, message: Notification, during: RequestId | None) -> None:
        params = message.params
        match message.method:
            case "notifications/progress":
                self._progress(params)
            case "notifications/message":
                self._message(params, during)
            case "notifications/cancelled":
                task = self._answering.get(_id(params.get("requestId")))
                if task is not None:
                    task.cancel()
            case "notifications/subscriptions/acknowledged":
                self.acknowledged.set()
            case "notifications/resources/updated" if isinstance(uri := params.get("uri"), str):
                self._listener.resource_updated(uri)
            case "notifications/elicitation/complete" if isinstance(name := params.get("elicitationId"), str):
                self._match_completion(name, None)
            case method if method in _LIST_CHANGED:
                self.has_changed_lists = True
                self._listener.lists_changed()

    def _progress(self, params: JsonObject) -> None:
        call = self.calls.get(own_id(params.get("progressToken")) or "")
        value, total, said = params.get("progress"), params.get("total"), _text(params.get("message"))
        if call is not None and value is not None and _is_number(value):
            call.progress(value, total if _is_number(total) else None, said)

    def _message(self, params: JsonObject, during: RequestId | None) -> None:
        call, level = self._call_of(during), params.get("level")
        if call is not None and level in meta.LOG_LEVELS:
            call.log(str(level), params.get("data"), _text(params.get("logger")))

    def _call_of(self, during: RequestId | None) -> RelayedCall | None:
        call = None if during is None else self.calls.get(during)
        # Over stdio, messages do not name their request. The newest call is the best guess.
        return call or next(reversed(self.calls.values()), None)

    async def _answer(self, request: Request, during: RequestId | None) -> None:
        try:
            result = await self._answered(request, during)
            message: dict[str, Json] = {"jsonrpc": jsonrpc.VERSION, "id": request.id, "result": dict(result)}
        except RpcError as error:
            said: dict[str, Json] = {"code": error.code, "message": error.message}
            message = {"jsonrpc": jsonrpc.VERSION, "id": request.id, "error": said}
        with suppress(UpstreamError):
            await self._send(message)

    async def _answered(self, request: Request, during: RequestId | None) -> JsonObject:
        # MCP 2025-06-18 basic/utilities/ping: the result is empty.
        if request.method == "ping":
            return {}
        capability = QUESTIONS.get(request.method) if self.may_ask else None
        if capability is None:
            raise RpcError(ErrorCode.METHOD_NOT_FOUND, f"Unknown method: {request.method}")
        call = self._call_of(during)
        if call is None:
            self.wants_roots |= capability == "roots"
            raise RpcError(ErrorCode.METHOD_NOT_FOUND, f"No client supports {capability} outside of a call")
        if capability not in call.capabilities:
            return call.decline(request.method)
        self.expect_completion(request.params, call)
        try:
            return await call.answer(request.method, request.params)
        except MissingCapabilityError:  # legacy revisions have no error code for this
            return call.decline(request.method)


def _id(value: Json) -> RequestId:
    return value if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
