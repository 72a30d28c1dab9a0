"""The context of one call: what a tool may say to its caller while it runs. Implements `gateway.plugin.Context`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar, get_args

from gateway.executors.output.plain_text import clean
from gateway.json_types import Json, JsonObject
from gateway.plugin import Answer, HttpClient, ListKind, LogLevel, Sample, ToolError
from gateway.protocol import answers, jsonrpc, meta, questions
from gateway.protocol.asker import Asker, Pause
from gateway.protocol.questions import CONFIRMATION_KEY, Question
from gateway.protocol.request import RequestContext, Runtime

T = TypeVar("T")

_KINDS: Final[tuple[ListKind, ...]] = get_args(ListKind)


class CallContext:
    """One call's context. Once `close` was called nothing more is sent for it: progress ends with the request."""

    def __init__(
        self,
        request: RequestContext,
        runtime: Runtime,
        *,
        asker: Asker | None,
        pause: Pause,
        read_resource: Callable[[str], Awaitable[Sequence[JsonObject]]],
    ) -> None:
        self._request: Final = request
        self._runtime: Final = runtime
        self._asker: Final = asker
        self._pause: Final = pause
        self._read_resource: Final = read_resource
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    @property
    def principal(self) -> str | None:
        return self._request.exchange.caller.identity.principal

    @property
    def client(self) -> JsonObject:
        return self._request.client_info

    @property
    def client_capabilities(self) -> JsonObject:
        return self._request.client_capabilities

    @property
    def protocol_version(self) -> str:
        return self._request.revision

    @property
    def progress_token(self) -> str | int | None:
        return self._request.progress_token

    @property
    def request_meta(self) -> JsonObject:
        return self._request.fields

    @property
    def cancelled(self) -> bool:
        task = asyncio.current_task()
        return self._is_closed or (task is not None and task.cancelling() > 0)

    @property
    def http(self) -> HttpClient:
        return self._runtime.services.http.shared

    async def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Tell how far the call is. Values must grow (basic/utilities/progress), so one that does not is left out."""
        if self._request.progress is not None and not self._is_closed:
            masked = None if message is None else self._request.catalog.redactor.text(clean(message))
            await self._request.progress.report(value, total, masked)

    async def log(self, level: LogLevel, data: Json, logger: str | None = None) -> None:
        """Send a log message, if the client asked for its level."""
        if level not in meta.LOG_LEVELS:
            raise ToolError(f"Unknown log level {level!r}: one of {', '.join(meta.LOG_LEVELS)}")
        wanted = self._request.log_level
        if wanted is None or meta.LOG_LEVELS.index(level) < meta.LOG_LEVELS.index(wanted):
            return
        params: dict[str, Json] = {"level": level, "data": self._request.catalog.redactor.json(data)}
        if logger is not None:
            params["logger"] = self._request.catalog.redactor.text(logger)
        self._runtime.announcements.tally.sent["notifications/message"] += 1
        await self._send("notifications/message", params)

    async def read_resource(self, uri: str) -> Sequence[JsonObject]:
        return await self._read_resource(uri)

    def notify_changed(self, kind: ListKind) -> None:
        self._runtime.announcements.list_changed(_known(kind))

    def resource_updated(self, uri: str) -> None:
        catalog = self._runtime.store.current
        for name in catalog.uris_of(uri):
            self._runtime.announcements.resource_updated(name, catalog)

    def enable(self, kind: ListKind, name: str) -> None:
        self._runtime.store.enable(_known(kind), name)

    def disable(self, kind: ListKind, name: str) -> None:
        self._runtime.store.disable(_known(kind), name)

    async def elicit(self, key: str, message: str, schema: JsonObject) -> Answer:
        return answers.read_answer(await self._answer(key, questions.elicitation(message, schema)))

    async def elicit_url(self, key: str, message: str, url: str) -> Answer:
        return answers.read_answer(await self._answer(key, questions.url_elicitation(message, url)))

    async def sample(  # noqa: PLR0913 - the fields of sampling/createMessage
        self,
        key: str,
        messages: str | Sequence[JsonObject],
        *,
        system_prompt: str | None = None,
        max_tokens: int = 1000,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: JsonObject | None = None,
        tools: Sequence[JsonObject] | None = None,
    ) -> Sample:
        fields = {
            "maxTokens": max_tokens,
            "systemPrompt": system_prompt,
            "temperature": temperature,
            "stopSequences": stop_sequences,
            "modelPreferences": model_preferences,
            "tools": tools,
        }
        return answers.read_sample(await self._answer(key, questions.sampling(messages, fields)))

    async def list_roots(self, key: str) -> Sequence[JsonObject]:
        return answers.read_roots(await self._answer(key, questions.roots()))

    async def ask(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Ask several questions at once; each is `{"method": …, "params": …}`, each answer the client's result."""
        return await self._answers({key: questions.read_question(request) for key, request in requests.items()})

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        return await self._live_asker.once(key, function)

    async def close_stream(self, retry_ms: int | None = None) -> None:
        """Close the connection; the client comes back for the rest. Does nothing where it could not come back."""
        if retry_ms is not None and retry_ms < 0:
            raise ToolError(f"retry_ms is a number of milliseconds, not {retry_ms}")
        if not self._is_closed:
            await self._request.exchange.close_stream(retry_ms)

    async def _answer(self, key: str, question: Question) -> JsonObject:
        return (await self._answers({key: question}))[key]

    async def _answers(self, asked: Mapping[str, Question]) -> Mapping[str, JsonObject]:
        if CONFIRMATION_KEY in asked:
            raise ToolError(f"The key {CONFIRMATION_KEY} is the gateway's own")
        put = {key: questions.checked(key, question) for key, question in asked.items()}
        return await self._live_asker.ask(put, pause=self._pause)

    @property
    def _live_asker(self) -> Asker:
        if self._asker is None:
            raise ToolError("Nothing can be asked here: only calls of tools, prompts and resources may ask")
        if self._is_closed:
            raise ToolError("The call has ended")
        return self._asker

    async def _send(self, method: str, params: JsonObject) -> None:
        if not self._is_closed:
            await self._request.exchange.send({"jsonrpc": jsonrpc.VERSION, "method": method, "params": params})


def _known(kind: ListKind) -> ListKind:
    """What an author says is not typed at run time, and a kind that there is not would be a method that MCP has not."""
    if kind not in _KINDS:
        raise ToolError(f"{kind!r} is no kind: there are {', '.join(_KINDS)}")
    return kind
