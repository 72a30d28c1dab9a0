"""The context of one run. Implements `gateway.plugin.Context`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar, get_args
from urllib.parse import unquote

import msgspec

from gateway import exact_json, plugin
from gateway.catalog.primitives import Primitive
from gateway.deadline import Deadline
from gateway.executors.python.results import valid_text
from gateway.json_types import Json, JsonObject
from gateway.limits.concurrency import ConcurrencyPermit
from gateway.plugin import Answer, ListKind, LogLevel, Sample, Task, ToolError
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests import requests as questions
from gateway.protocol.call.input_requests import responses as answers
from gateway.protocol.call.input_requests.mrtr_requester import MrtrRequester
from gateway.protocol.call.input_requests.requester import InputRequester, RunSuspension, Suspension, Where, both
from gateway.protocol.call.input_requests.requests import CONFIRMATION_KEY, InputRequest
from gateway.protocol.call.input_requests.session_requester import SessionRequester
from gateway.threads import shaped
from gateway.wire import jsonrpc, meta

T = TypeVar("T")

_KINDS: Final[tuple[ListKind, ...]] = get_args(ListKind)


class CallContext(msgspec.Struct, eq=False):
    """One run of a primitive. Nothing is sent after the run has ended."""

    call: Call
    primitive: Primitive
    is_completion: bool = False
    """Such a run is not rate limited, and cannot send input requests."""
    outer: "CallContext | None" = None
    """The run of the same call that started this one and holds the caller's permits."""
    is_over: bool = False
    _began: float = 0.0
    _deadline: Deadline | None = None
    _permit: ConcurrencyPermit | None = None
    _opened: InputRequester | None = None
    _suspension: RunSuspension | None = None

    @property
    def deadline(self) -> Deadline:
        """Only available after the start of the run."""
        if self._deadline is None:
            assert self._began  # noqa: S101 - see `permit`
            seconds = self.primitive.timeout.total_seconds()
            self._deadline = Deadline(self._began + seconds, seconds)
        return self._deadline

    @property
    def permit(self) -> ConcurrencyPermit:
        """Only available after the start of the run."""
        assert self._permit is not None  # noqa: S101 - executors only receive started runs
        return self._permit

    @property
    def principal(self) -> str | None:
        return self.call.caller.principal

    @property
    def caller(self) -> plugin.Caller | None:
        return None if self.principal is None else plugin.Caller(**self.call.caller_facts)

    @property
    def client(self) -> JsonObject:
        return self.call.terms.client_info

    @property
    def client_capabilities(self) -> JsonObject:
        return self.call.terms.capabilities

    @property
    def protocol_version(self) -> str:
        return self.call.revision

    @property
    def progress_token(self) -> str | int | None:
        return self.call.progress_token

    @property
    def request_meta(self) -> JsonObject:
        return self.call.meta

    @property
    def cancelled(self) -> bool:
        task = asyncio.current_task()
        return self.is_over or (task is not None and task.cancelling() > 0)

    @property
    def task(self) -> Task | None:
        return None if self.call.task is None else self.call.task.facts

    @property
    def http(self) -> "plugin.HttpClient":
        return self.call.server.services.http.shared

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Report progress. Values that do not increase are ignored (basic/utilities/progress)."""
        if self.is_over:
            return _nothing()
        masked = None if message is None else self.call.catalog.sanitizer.text(valid_text(message))
        self.call.activity.note_progress(value, total, masked)
        if self.call.progress is None:
            return _nothing()
        if self.call.activity.queue.is_full:  # before `report`, which delays repetitions
            return self._dropped("notifications/progress")
        send = self.call.progress.report(value, total, masked)
        return _nothing() if send is None else self.call.activity.queue.put(send)

    def log(self, level: LogLevel, data: Json, logger: str | None = None) -> Awaitable[None]:
        if level not in meta.LOG_LEVELS:
            raise ToolError(f"Unknown log level {level!r}. Use one of {', '.join(meta.LOG_LEVELS)}.")
        wanted = self.call.terms.log_level
        # 2026-07-28 server/utilities/logging, "Per-request log level".
        if wanted is None or meta.LOG_LEVELS.index(level) < meta.LOG_LEVELS.index(wanted):
            return _nothing()
        written = _written(data)  # encoded now, because the plugin may change the data
        if self.is_over:
            return _nothing()
        if self.call.activity.queue.is_full:
            return self._dropped("notifications/message")
        name = None if logger is None else self.call.catalog.sanitizer.text(valid_text(logger))
        return self.call.activity.queue.put(partial(self._send_log, level, written, name))

    def notify_changed(self, kind: ListKind) -> None:
        self.call.server.notifier.list_changed(_known(kind))
        self.call.server.notifier.tell_others("changed", kind, "")

    def resource_updated(self, uri: str) -> None:
        catalog = self.call.server.store.current
        for name in catalog.uris_of(uri):
            self.call.server.notifier.resource_updated(name, catalog)
        self.call.server.notifier.tell_others("updated", "resources", uri)

    def enable(self, kind: ListKind, name: str) -> None:
        self.call.server.store.enable(_known(kind), name)
        self.call.server.notifier.tell_others("enabled", kind, name)

    def disable(self, kind: ListKind, name: str) -> None:
        self.call.server.store.disable(_known(kind), name)
        self.call.server.notifier.tell_others("disabled", kind, name)

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
        """Send several requests `{"method": …, "params": …}`. Return the results by key."""
        return await self._asked(requests, None)

    async def ask_before(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Send requests before the call becomes a task."""
        return await self._asked(requests, "before")

    async def ask_inside(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        """Send requests inside the task, if there is or may be one."""
        return await self._asked(requests, "inside")

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        return await self._requester.budget.once(key, function)

    def close_stream(self, retry_ms: int | None = None) -> Awaitable[None]:
        """Close the connection if the client can reconnect for the remaining messages."""
        if retry_ms is not None and retry_ms < 0:
            raise ToolError(f"`retry_ms` must not be negative (got {retry_ms})")
        return (
            _nothing()
            if self.is_over
            else self.call.activity.queue.put(partial(self.call.exchange.close_stream, retry_ms))
        )

    async def _answer(self, key: str, question: InputRequest) -> JsonObject:
        return (await self._answers({key: question}))[key]

    async def _asked(self, requests: Mapping[str, JsonObject], where: Where | None) -> Mapping[str, Json]:
        asked = {key: questions.read_input_request(request) for key, request in requests.items()}
        return await self._answers(asked, where)

    async def _answers(self, asked: Mapping[str, InputRequest], where: Where | None = None) -> Mapping[str, JsonObject]:
        # Reserved for the user's confirmation of the tool.
        if CONFIRMATION_KEY in asked:
            raise ToolError(f"The key {CONFIRMATION_KEY} is reserved")
        masked = {key: self._masked(questions.checked(key, question)) for key, question in asked.items()}
        has_lines = not _has_breaks(self.call.params)
        put = {key: questions.shown(question, has_lines=has_lines) for key, question in masked.items()}
        if self.call.activity.has_sent:
            await self.call.activity.queue.drain()  # earlier messages are sent before the request
        found = await self._requester.request(put, pause=self.suspension, where=where)
        return {key: questions.with_names_of(masked[key], answer) for key, answer in found.items()}

    def _masked(self, question: InputRequest) -> InputRequest:
        return InputRequest(question.method, self.call.catalog.masker.json(question.params))

    def open_requester(self) -> InputRequester | None:
        """Return the requester of input, or None if the run cannot send input requests."""
        # basic/patterns/mrtr, "Supported Requests": completions do not support input requests.
        if self.is_completion:
            return None
        if self.outer is not None:
            return self.outer.open_requester()
        if self._opened is None:
            call = self.call
            if call.task is not None:
                self._opened = call.task.open_requester(call, definition=self.primitive.version)
            elif call.session is not None:
                self._opened = SessionRequester(call, call.session, ask_timeout=self.primitive.ask_timeout)
            else:
                self._opened = MrtrRequester(call, definition=self.primitive.version)
        return self._opened

    @property
    def suspension(self) -> Suspension:
        if self._suspension is None:
            waited = partial(self.call.activity.note_wait, "answer")
            self._suspension = RunSuspension(self.deadline, self.permit, waited=waited)
        return self._suspension if self.outer is None else partial(both, self.outer.suspension, self._suspension)

    @property
    def _requester(self) -> InputRequester:
        if self.is_over:
            raise ToolError("The call has ended")
        if (requester := self.open_requester()) is None:
            raise ToolError("Only calls of tools, prompts and resources can send input requests")
        return requester

    def _dropped(self, method: str) -> Awaitable[None]:
        """Count a dropped message. The result can be awaited until the queue is empty."""
        self.call.server.notifier.counters.dropped[method] += 1
        return self.call.activity.queue.last

    async def _send_log(self, level: LogLevel, written: bytes, logger: str | None) -> None:
        # Large data is masked in a thread.
        masked = await shaped(
            lambda: self.call.catalog.sanitizer.json(exact_json.loads(written)),
            size=len(written),
            call=self,
            threads=self.call.server.services.worker_threads,
        )
        params: dict[str, Json] = {"level": level, "data": masked}
        if logger is not None:
            params["logger"] = logger
        self.call.server.notifier.counters.sent["notifications/message"] += 1
        notification = {"jsonrpc": jsonrpc.VERSION, "method": "notifications/message", "params": params}
        await self.call.exchange.send(notification)


def _nothing() -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def _written(data: Json) -> bytes:
    try:
        return exact_json.dumps(data, default=jsonrpc.plain)
    except TypeError as error:
        raise ToolError(f"The data of the log message cannot be encoded as JSON: {error}") from error


def _has_breaks(value: Json) -> bool:
    """Return whether the arguments contain line breaks, which could forge lines in a message."""
    match value:
        case str():
            # Variables of URIs are percent-decoded later.
            return any(end in value or end in unquote(value) for end in "\n\t")
        case Mapping():
            return any(map(_has_breaks, value.values()))
        case list():
            return any(map(_has_breaks, value))
        case _:
            return False


def _known(kind: ListKind) -> ListKind:
    if kind not in _KINDS:
        raise ToolError(f"Unknown kind {kind!r}. Use one of {', '.join(_KINDS)}.")
    return kind
