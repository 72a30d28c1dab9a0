import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, cast

import structlog

from gateway.config.models.upstreams import Upstream
from gateway.errors import ErrorCode, ExecutionError, RpcError
from gateway.executors.invocation import Invocation, text_size
from gateway.json_types import Json, JsonObject
from gateway.limits.concurrency import ConcurrencyPermit
from gateway.plugin import LogLevel
from gateway.wire import meta
from gateway.wire.input_requests import ELICIT, LIST_ROOTS, SAMPLE
from gateway.wire.revisions import MODERN

log: Final = structlog.get_logger(__name__)

QUESTIONS: Final[Mapping[str, str]] = {
    ELICIT: "elicitation",
    SAMPLE: "sampling",
    LIST_ROOTS: "roots",
}
"""The requests that a server can send to a client, with the client capability that each one requires."""
EVERYTHING: Final[JsonObject] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
MAX_WAITING: Final = 1000
"""Maximum number of notifications per call that wait for the client. Further notifications are dropped."""
MAX_TEXT: Final = 4096
_MAX_LOGGED: Final = 64 * 1024
_CONNECTION_KEYS: Final = ("io.modelcontextprotocol/", "com.modelcontextprotocol/")


class RelayedCall:
    """A call to an upstream server. Notifications reach the client in order, and before the response."""

    def __init__(self, invocation: Invocation, config: Upstream, *, upstream: str, may_ask: bool = True) -> None:
        """If `may_ask` is false, the call declares no client capabilities, so the server does not request input."""
        context, call = invocation.context, invocation.call
        self._invocation: Invocation | None = invocation
        """None between the requests of a parked call."""
        self._config: Final = config
        self._upstream: Final = upstream
        self._declined: Final[list[str]] = []
        self._asked = 0
        self._permit: ConcurrencyPermit
        self._open_questions = 0
        self._waiting = 0
        self._last: asyncio.Task[None] | None = None
        self.key: Final = call.client_key
        """Key of the client's session, if clients have separate sessions."""
        self.subject: Final = call.caller.subject
        self.is_modern: Final = context.protocol_version in MODERN
        # In a shared session, the server cannot distinguish clients.
        is_shared = config.session == "shared"
        offered: JsonObject = {} if is_shared else allowed(config, context.client_capabilities)
        self.capabilities: Final[JsonObject] = offered if may_ask else {}
        """The client's capabilities that the entry allows."""
        # The modern clients of a principal share a session, but can have different capabilities.
        self.declared: Final = allowed(config, EVERYTHING) if self.is_modern else offered
        """Capabilities of a session that is opened for this call."""
        self.announce: Final = call.announce
        """Queues a notification for the client, even after the call has ended."""
        self.log_level: Final = call.terms.log_level if config.logging else None
        self.wants_progress: Final = context.progress_token is not None
        headers = call.caller.headers
        self.fields: Final = {name: headers[name.lower()] for name in config.forward_headers if name.lower() in headers}

    @property
    def meta(self) -> JsonObject:
        """Return the client's `_meta` members to forward, with the trace context of a new span."""
        if self._invocation is None:
            return {}
        fields = {
            name: value
            for name, value in self._invocation.context.request_meta.items()
            if name != meta.META_PROGRESS_TOKEN and not name.startswith(_CONNECTION_KEYS)
        }
        with self._invocation.trace.step(f"call {self._upstream}", kind="client", facts={}) as step:
            return fields if step.context is None else {**fields, **step.context.fields}

    def attach_permit(self, permit: ConcurrencyPermit) -> None:
        self._permit = permit

    async def answer(self, method: str, params: JsonObject) -> JsonObject:
        """Forward a request of the server to the client, and return the response.

        While the client is asked, the call does not count against the concurrency limit. Raise RpcError if the client
        refuses.
        """
        # Suspend the permit, so that a few open input requests do not block other calls to the server.
        self._open_questions += 1
        self._permit.suspend()
        try:
            answer = await self._ask(method, params)
        except BaseException:
            self._open_questions -= 1
            if not self._open_questions:
                # Unlike resume(), this does not wait, so a failed or cancelled call can end.
                self._permit.force_resume()
            raise
        self._open_questions -= 1
        if not self._open_questions:
            await self._permit.resume()
        return answer

    async def _ask(self, method: str, params: JsonObject) -> JsonObject:
        if self._invocation is None:
            return self.decline(method)
        self._asked += 1
        key = f"{self._upstream}.{self._asked}"
        try:
            answers = await self._invocation.context.ask({key: {"method": method, "params": params}})
        except ExecutionError as error:
            raise RpcError(ErrorCode.INTERNAL_ERROR, str(error)) from error
        answer: JsonObject = answers[key]
        return answer

    def decline(self, method: str) -> JsonObject:
        """Return the response, or raise the RpcError, for a server's request that the client does not support."""
        capability = QUESTIONS[method]
        self._declined.append(capability)
        if method == "elicitation/create":
            return {"action": "decline"}
        raise RpcError(ErrorCode.METHOD_NOT_FOUND, f"The client does not support {capability}")

    def with_notes(self, result: JsonObject) -> JsonObject:
        """Add a note to the result that tells the model about declined requests of the server."""
        if not self._declined or not isinstance(content := result.get("content"), list):
            return result
        asked = " and ".join(dict.fromkeys(self._declined))
        note = f"{self._upstream} asked for {asked}, which this client does not support. The request was declined."
        return {**result, "content": [*content, {"type": "text", "text": note}]}

    def progress(self, value: float, total: float | None, message: str | None) -> None:
        async def send() -> None:
            if self._invocation is not None:
                await self._invocation.context.progress(value, total, message and message[:MAX_TEXT])

        self._queue(send)

    def log(self, level: str, data: Json, logger: str | None) -> None:
        async def send() -> None:
            if self._invocation is not None and self._config.logging:
                size = text_size(data, enough=_MAX_LOGGED)
                shown = data if size <= _MAX_LOGGED else f"[… {size} characters or more left out …]"
                name = self._upstream if logger is None else f"{self._upstream}/{logger[:MAX_TEXT]}"
                await self._invocation.context.log(cast("LogLevel", level), shown, name)

        self._queue(send)

    async def finish(self) -> None:
        if self._last is not None:
            # Cancelling the call must not interrupt a notification.
            await asyncio.shield(self._last)

    def _queue(self, send: Callable[[], Awaitable[None]]) -> None:
        if self._waiting < MAX_WAITING:
            self._waiting += 1
            self._last = asyncio.create_task(self._send_after(self._last, send), name="relay a notification")

    async def _send_after(self, before: asyncio.Task[None] | None, send: Callable[[], Awaitable[None]]) -> None:
        # MCP 2025-06-18 basic/utilities/progress: values must increase.
        if before is not None:
            await asyncio.wait([before])
        try:
            await send()
        except Exception:  # Boundary: a notification must not end the call.
            log.exception("notification of an upstream not relayed")
        finally:
            self._waiting -= 1


def allowed(config: Upstream, capabilities: JsonObject) -> dict[str, Json]:
    """Return those client capabilities that the configuration of a server allows."""
    if not capabilities:
        return {}
    permitted = {name for name in QUESTIONS.values() if getattr(config, name)}
    return {name: value for name, value in capabilities.items() if name in permitted}
