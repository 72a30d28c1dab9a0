"""The caller behind an invocation: its client, asked and told through the invocation's context."""

from collections.abc import Callable, Mapping
from typing import Final, cast

from gateway.access.subject import Subject
from gateway.config.models.upstreams import Upstream
from gateway.errors import ErrorCode, ExecutionError, RpcError
from gateway.executors.invocation import Invocation, text_size
from gateway.json_types import Json, JsonObject
from gateway.plugin import LogLevel
from gateway.upstreams.client.server_messages import QUESTIONS
from gateway.upstreams.pool import EVERYTHING, allowed
from gateway.wire import meta
from gateway.wire.revisions import MODERN

MAX_SAID: Final = 4096
"""Characters of a message of an upstream, such as one on progress."""
_MAX_LOGGED: Final = 64 * 1024
"""Characters of one log message of an upstream."""
_OURS: Final = ("io.modelcontextprotocol/", "com.modelcontextprotocol/")


class InvocationCaller:
    """Implements `Caller`. Another invocation can take its place: the retry of a call that waits for an answer."""

    def __init__(self, invocation: Invocation, config: Upstream, *, upstream: str, may_ask: bool = True) -> None:
        """`may_ask` says whether the client may be asked in this request."""
        self._invocation: Final = invocation
        self._context: Final = invocation.context
        self._config: Final = config
        self._upstream: Final = upstream
        self._declined: list[str] = []
        self._asked = 0
        self.key: Final = invocation.call.client_key
        self.is_modern: Final = self._context.protocol_version in MODERN
        is_shared = config.session == "shared"
        # In a session of all clients nobody can be asked: the server could not tell whom.
        self._offered: Final[JsonObject] = {} if is_shared else allowed(config, self._context.client_capabilities)
        self.capabilities: Final[JsonObject] = self._offered if may_ask else {}

    @property
    def declared(self) -> JsonObject:
        """The capabilities of a session that begins for it: one principal may come with several modern clients."""
        return allowed(self._config, EVERYTHING) if self.is_modern else self._offered

    @property
    def subject(self) -> Subject:
        return self._invocation.call.caller.subject

    @property
    def announce(self) -> Callable[[str, JsonObject], object] | None:
        return self._invocation.call.announce

    @property
    def log_level(self) -> str | None:
        return self._invocation.call.terms.log_level if self._config.logging else None

    @property
    def wants_progress(self) -> bool:
        return self._context.progress_token is not None

    @property
    def fields(self) -> Mapping[str, str]:
        given = self._invocation.call.caller.headers
        return {name: given[name.lower()] for name in self._config.forward_headers if name.lower() in given}

    @property
    def meta(self) -> JsonObject:
        """All but what is about the connection, and the trace as it goes on from here."""
        fields = {
            name: value
            for name, value in self._context.request_meta.items()
            # The session writes its own token and metadata: the client's say something of another connection.
            if name != meta.META_PROGRESS_TOKEN and not name.startswith(_OURS)
        }
        with self._invocation.trace.step(f"call {self._upstream}", kind="client", facts={}) as step:
            return fields if step.context is None else {**fields, **step.context.fields}

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Ask in-band."""
        # A server may ask what its client did not declare: it must not reach a client that cannot answer.
        if QUESTIONS[method] not in self.capabilities:
            return self.declined(method)
        self._asked += 1
        key = f"{self._upstream}.{self._asked}"
        try:
            answers = await self._context.ask({key: {"method": method, "params": params}})
        except ExecutionError as error:
            raise RpcError(ErrorCode.INTERNAL_ERROR, str(error)) from error
        answer: JsonObject = answers[key]
        return answer

    def declined(self, method: str) -> JsonObject:
        """The answer to a question that this client cannot take; the caller hears of it with the result.

        Raises:
            RpcError: the method has no such answer.
        """
        capability = QUESTIONS[method]
        self._declined.append(capability)
        if method == "elicitation/create":
            return {"action": "decline"}
        raise RpcError(ErrorCode.METHOD_NOT_FOUND, f"The client offers no {capability}")

    def with_notes(self, result: JsonObject) -> JsonObject:
        """The result, with a word on what the upstream asked and the client could not be asked."""
        # The model reads the result, and nobody else would tell it why the upstream did less than it was asked.
        if not self._declined or not isinstance(content := result.get("content"), list):
            return result
        asked = " and ".join(dict.fromkeys(self._declined))
        note = f"{self._upstream} asked for {asked}, which this client does not offer here; it was declined."
        return {**result, "content": [*content, {"type": "text", "text": note}]}

    async def progress(self, value: float, total: float | None, message: str | None) -> None:
        await self._context.progress(value, total, message and message[:MAX_SAID])

    async def log(self, level: str, data: Json, logger: str | None) -> None:
        if self._config.logging and level in meta.LOG_LEVELS:
            name = self._upstream if logger is None else f"{self._upstream}/{logger[:MAX_SAID]}"
            size = text_size(data, enough=_MAX_LOGGED)
            shown = data if size <= _MAX_LOGGED else f"[… {size} characters or more left out …]"
            await self._context.log(cast("LogLevel", level), shown, name)
