import asyncio
import itertools
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Final

import structlog

from gateway import __version__, exact_json
from gateway.access.identity import Subject
from gateway.background_tasks import BackgroundTasks
from gateway.errors import ErrorCode, RpcError
from gateway.executors.invocation import text_size
from gateway.json_types import Json, JsonObject
from gateway.upstreams.client.link import Link
from gateway.upstreams.client.relayed_call import RelayedCall
from gateway.upstreams.client.server_messages import Listener, ServerMessages
from gateway.upstreams.failures import BadAnswerError, NotMcpError, RequestRefusedError, UpstreamError
from gateway.wire import headers, jsonrpc, meta
from gateway.wire.headers import HeaderParameter
from gateway.wire.jsonrpc import Response
from gateway.wire.revisions import LATEST_LEGACY, LATEST_MODERN, LEGACY, MODERN, Era, closest_legacy

log: Final = structlog.get_logger(__name__)

CLIENT_INFO: Final[JsonObject] = {"name": "mcp-gateway", "version": __version__}
_PING_SECONDS: Final = 5.0
_ROOTS_SECONDS: Final = 0.2
"""After new roots are sent, the next call is delayed by this time, because servers need time to process roots."""
_MAX_MESSAGE: Final = 4096
_MAX_DATA: Final = 64 * 1024
_CANCEL_SECONDS: Final = 5.0
_RELISTEN_SECONDS: Final = 1.0
_MAX_RELISTEN_SECONDS: Final = 60.0
_WATCH_SECONDS: Final = 5.0
_TEMPORARY: Final = frozenset({ErrorCode.INTERNAL_ERROR, ErrorCode.TOO_MANY_REQUESTS})
_RESOURCES: Final = "resourceSubscriptions"
_REASON: Final = 300


class Session:
    def __init__(
        self,
        link: Link,
        *,
        listener: Listener,
        capabilities: JsonObject,
    ) -> None:
        """`capabilities` are the client capabilities that the session declares.

        In 2026-07-28, each request of a call declares the capabilities of that call instead.
        """
        self._link: Final = link
        self.transport: Final = link.transport
        self._listener: Final = listener
        self._declared: Final = capabilities
        self._ids: Final = itertools.count(1)
        self._tasks: Final = BackgroundTasks()
        self._incoming: Final = ServerMessages(
            listener, send=lambda message: link.send(message, self._session_fields()), tasks=self._tasks
        )
        self._roots_lock: Final = asyncio.Lock()
        self._has_begun = False
        """Whether a call of a client that supports roots was sent."""
        self._watching: asyncio.Task[None] | None = None
        self._log_level: str | None = None
        self.era = Era.MODERN
        self.revision = LATEST_MODERN
        self.capabilities: JsonObject = {}
        self.server_info: JsonObject = {}
        self.instructions = ""
        self.deviations: Final[list[str]] = []
        """Deviations of the server from the specification that the gateway has corrected."""
        self.used_at = 0.0
        self.subscribed: frozenset[str] = frozenset()

    @property
    def is_closed(self) -> bool:
        return self._link.closed.done()

    @property
    def closed(self) -> asyncio.Future[str]:
        return self._link.closed

    @property
    def open_calls(self) -> int:
        return len(self._incoming.calls)

    @property
    def is_stateless(self) -> bool:
        # Over other transports, the connection is the session.
        has_id = getattr(self._link, "session_id", None) is not None
        return self.transport == "http" and (self.era is Era.MODERN or not has_id)

    @property
    def non_mcp_output(self) -> str:
        return self._link.non_mcp_output

    def take_list_change(self) -> bool:
        """Return whether the server has announced list changes since this method was last called."""
        has_changed, self._incoming.has_changed_lists = self._incoming.has_changed_lists, False
        return has_changed

    async def open(self, *, subject: Subject | None) -> None:
        """Open the connection. Raise UnreachableError if it fails."""
        await self._link.open(self._incoming.take, subject=subject)

    async def handshake(self, era: Era) -> None:
        """Negotiate the revision with `server/discover` or `initialize`, depending on `era`.

        Raise UpstreamError if the server refuses. The other handshake can then be tried on the same connection.
        """
        try:
            try:
                await self._negotiate(era, LATEST_MODERN if era is Era.MODERN else LATEST_LEGACY)
            except RpcError as error:
                # The error may list the supported revisions.
                data, known = _mapping(error.data), MODERN if era is Era.MODERN else LEGACY
                supported = [version for version in known if version in _list(data.get("supported"))]
                if not supported:
                    raise
                await self._negotiate(era, supported[-1])
        except RpcError as error:
            raise NotMcpError(f"refuses the handshake: {error.message} ({error.code})") from error
        if self._watching is None:
            self._watch()

    async def close(self) -> None:
        await self._tasks.cancel()
        await self._link.close()

    async def request(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        call: RelayedCall | None = None,
        mirrored: tuple[HeaderParameter, ...] = (),
    ) -> JsonObject:
        """Send a request, and return its result. Raise RpcError or UpstreamError.

        `mirrored` lists arguments that are also sent as HTTP headers (MCP 2026-07-28 basic/transports).
        """
        if call is not None and call.log_level is not None:
            await self._set_level(call.log_level)
        request_id = next(self._ids)
        given = params or {}
        message = {
            "jsonrpc": jsonrpc.VERSION,
            "id": request_id,
            "method": method,
            "params": self._with_meta(given, request_id, call),
        }
        fields = self._fields(method, given, call, mirrored)
        if call is not None:
            # Input requests and progress can arrive before the response.
            self._incoming.calls[request_id] = call
        try:
            if call is not None and self.era is Era.LEGACY and "roots" in call.capabilities:
                await self._refresh_roots()
            response = await self._link.request(message, fields, subject=None if call is None else call.subject)
            if call is not None:
                await call.finish()
                self._note_elicitations(response, call)
        except asyncio.CancelledError:
            # MCP 2025-06-18 basic/utilities/cancellation: clients must not cancel `initialize`.
            if method not in {"initialize", "server/discover"}:
                self._tasks.begin(self._cancel(request_id), name="cancel at upstream")
            raise
        finally:
            self._incoming.calls.pop(request_id, None)
        return _result_of(response)

    async def _refresh_roots(self) -> None:
        async with self._roots_lock:
            if self._has_begun and not self._incoming.wants_roots:
                return
            with suppress(UpstreamError, RpcError, TimeoutError):
                if not self._has_begun:
                    # Servers ask for roots after `initialized`, before they respond to this ping.
                    self._has_begun = True
                    await self._ping_briefly()
                if self._incoming.wants_roots:
                    self._incoming.wants_roots = False
                    await self.notify("notifications/roots/list_changed")
                    await self._ping_briefly()
                if await self._incoming.roots_sent():
                    # Servers check the directories first, and do not report when they have finished.
                    await asyncio.sleep(_ROOTS_SECONDS)

    async def _ping_briefly(self) -> None:
        async with asyncio.timeout(_PING_SECONDS):
            await self.request("ping")

    def _note_elicitations(self, response: Response, call: RelayedCall) -> None:
        error = _mapping(response.error)
        if error.get("code") == ErrorCode.URL_ELICITATION_REQUIRED:
            elicitations = _mapping(error.get("data")).get("elicitations")
            for elicitation in elicitations if isinstance(elicitations, list) else ():
                self._incoming.expect_completion(elicitation, call)

    async def notify(self, method: str, params: Mapping[str, Json] | None = None) -> None:
        """Send a notification. Raise UpstreamError if sending fails."""
        message: dict[str, Json] = {"jsonrpc": jsonrpc.VERSION, "method": method}
        if params is not None:
            message["params"] = dict(params)
        await self._link.send(message, self._fields(method, {}, None, ()))

    def roots_changed(self) -> None:
        """Notify the server that the client's roots have changed. Since 2026-07-28, servers request roots."""
        if self.era is Era.LEGACY and "roots" in self._declared:

            async def notify() -> None:
                with suppress(UpstreamError):
                    await self.notify("notifications/roots/list_changed")

            self._tasks.begin(notify(), name="notify upstream of roots")

    async def ping(self) -> None:
        """Send a ping. Raise UpstreamError if the server does not respond."""
        await self.request("server/discover" if self.era is Era.MODERN else "ping")

    async def watch(self, uris: frozenset[str]) -> None:
        """Subscribe to exactly these resources. Return once the server has confirmed, or after a timeout."""
        # Set first, so that a concurrent call does not subscribe again.
        before, self.subscribed = self.subscribed, uris
        with suppress(TimeoutError):
            async with asyncio.timeout(_WATCH_SECONDS):
                if self.era is Era.LEGACY:
                    await self._ask_for_each("resources/subscribe", uris - before)
                    await self._ask_for_each("resources/unsubscribe", before - uris)
                elif uris != before:
                    self._watch()
                    await self._incoming.acknowledged.wait()

    async def _ask_for_each(self, method: str, uris: frozenset[str]) -> None:
        for uri in sorted(uris):
            # A URI that matches a template may not exist.
            with suppress(RpcError):
                await self.request(method, {"uri": uri})

    async def _negotiate(self, era: Era, revision: str) -> None:
        self.era, self.revision, self._incoming.may_ask = era, revision, era is Era.LEGACY
        await (self._discover() if era is Era.MODERN else self._initialize())

    async def _initialize(self) -> None:
        result = await self.request(
            "initialize",
            {"protocolVersion": self.revision, "capabilities": self._declared, "clientInfo": CLIENT_INFO},
        )
        if self._watching is not None:
            return  # the response to the probe came first
        revision = result.get("protocolVersion")
        used = closest_legacy(revision)
        if used != revision:
            self.deviations.append(f"it responds with the unknown revision {revision!r:.40}. The gateway uses {used}")
        self.era, self.revision, self._incoming.may_ask = Era.LEGACY, used, True
        self.capabilities = _mapping(result.get("capabilities"))
        self.server_info = _mapping(result.get("serverInfo"))
        self.instructions = str(result.get("instructions") or "")
        try:
            await self.notify("notifications/initialized")
        except (BadAnswerError, NotMcpError, RequestRefusedError) as error:
            # JSON-RPC 2.0 §4.1: a notification has no response, so an error does not concern the session.
            # Without the body, which can differ each time. A different text would cause a reload.
            said = str(error).partition(":")[0]
            self.deviations.append(f"it rejects `notifications/initialized` ({said})")

    async def _discover(self) -> None:
        result = await self.request("server/discover")
        if self._watching is not None:
            return  # the response to `initialize`, which was sent later, came first
        versions = result.get("supportedVersions")
        known = [version for version in MODERN if version in _list(versions)]
        if not known:
            raise NotMcpError(f"supports revisions {versions!r}, but the gateway supports only {', '.join(MODERN)}")
        # `MODERN` is sorted by date.
        self.era, self.revision, self._incoming.may_ask = Era.MODERN, known[-1], False
        self.capabilities = _mapping(result.get("capabilities"))
        self.server_info = _mapping(_mapping(result.get(meta.META)).get(meta.META_SERVER_INFO))
        self.instructions = str(result.get("instructions") or "")

    def _watch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._incoming.acknowledged.clear()
        listening = self._listen() if self.era is Era.MODERN else self._link.listen(self._session_fields, self.ping)
        self._watching = self._tasks.begin(listening, name="listen to upstream")
        self._watching.add_done_callback(_log_failure)

    async def _listen(self) -> None:
        """Keep a `subscriptions/listen` request open (MCP 2026-07-28 basic/patterns/subscriptions)."""
        wanted: dict[str, Json] = {
            f"{kind}ListChanged": True
            for kind in ("tools", "prompts", "resources")
            if _mapping(self.capabilities.get(kind)).get("listChanged")
        }
        if self.subscribed:
            wanted[_RESOURCES] = sorted(self.subscribed)
        # The pause grows if the server ends the stream at once.
        pause = _RELISTEN_SECONDS
        while wanted:
            began = monotonic()
            try:
                await self.request("subscriptions/listen", {"notifications": wanted})
            except RpcError as error:
                if error.code not in _TEMPORARY:
                    return  # the server does not support subscriptions
            except UpstreamError:
                if self.is_closed:
                    return
            if monotonic() - began > pause:
                pause = _RELISTEN_SECONDS
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_RELISTEN_SECONDS)
            if wanted.keys() - {_RESOURCES}:  # changes during the pause were not announced
                self._listener.lists_changed()

    def _with_meta(self, params: JsonObject, request_id: int, call: RelayedCall | None) -> JsonObject:
        fields: dict[str, Json] = {} if call is None else dict(call.meta)
        if call is not None and call.wants_progress:
            # 2025-06-18 basic/utilities/progress: tokens are unique per session, so the client's token cannot be used.
            fields[meta.META_PROGRESS_TOKEN] = request_id
        if self.era is Era.MODERN:
            fields[meta.META_PROTOCOL_VERSION] = self.revision
            fields[meta.META_CLIENT_INFO] = CLIENT_INFO
            fields[meta.META_CLIENT_CAPABILITIES] = self._declared if call is None else call.capabilities
            if call is not None and call.log_level is not None:
                fields[meta.META_LOG_LEVEL] = call.log_level
        return {**params, meta.META: fields} if fields else params

    def _fields(
        self, method: str, params: JsonObject, call: RelayedCall | None, mirrored: tuple[HeaderParameter, ...]
    ) -> Mapping[str, str]:
        if self.transport == "stdio":
            return {}
        fields = {} if call is None else dict(call.fields)
        # MCP 2025-06-18 basic/transports, "Protocol Version Header": on all requests after `initialize`.
        if method != "initialize":
            fields |= self._session_fields()
        if self.era is Era.MODERN:
            fields |= headers.request_fields(method, params)
            fields |= headers.parameter_fields(mirrored, _mapping(params.get("arguments")))
        return fields

    def _session_fields(self) -> Mapping[str, str]:
        return {"MCP-Protocol-Version": self.revision}

    async def _set_level(self, level: str) -> None:
        if self.era is Era.MODERN or level == self._log_level or "logging" not in self.capabilities:
            return
        # Set first, so that a server that refuses is not asked again.
        self._log_level = level
        with suppress(RpcError):
            await self.request("logging/setLevel", {"level": level})

    async def _cancel(self, request_id: int) -> None:
        if self.era is Era.MODERN and self.transport == "http":
            return
        with suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.notify(
                    "notifications/cancelled", {"requestId": request_id, "reason": "the client has disconnected"}
                )


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("notification stream of an upstream failed", error=str(error))


def _result_of(response: Response) -> JsonObject:
    if response.error is not None:
        error = _mapping(response.error)
        code, message, data = error.get("code"), error.get("message"), error.get("data")
        raise RpcError(
            code if type(code) is int else ErrorCode.INTERNAL_ERROR,
            message[:_MAX_MESSAGE]
            if isinstance(message, str)
            else (text if isinstance(text := response.error, str) else exact_json.dumps(text).decode())[:_REASON],
            data if text_size(data, enough=_MAX_DATA) <= _MAX_DATA else None,
        )
    if not isinstance(response.result, dict):
        raise BadAnswerError("returned a result that is not an object")
    return response.result


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _mapping(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}
