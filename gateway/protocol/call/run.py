"""Implements a run of a tool, resource or prompt: the `Invocation` of executors and the `Context` of plugins."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar, get_args
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from gateway import exact_json, plugin
from gateway.access.claims import digest_of_facts
from gateway.catalog.catalog import NO_LIMITS
from gateway.catalog.primitives import Primitive, Prompt, Resource, ResourceTemplate, Tool
from gateway.config.models.quantities import RateLimit
from gateway.config.models.server import Limits
from gateway.deadline import Deadline
from gateway.errors import (
    ErrorCode,
    ExecutionError,
    InsufficientScopeError,
    MissingCapabilityError,
    OverLimitError,
    ResourceError,
    ResourceNotFoundError,
)
from gateway.executors.invocation import AwaitingInput, Invocation, Relayed
from gateway.executors.output.result_shaper import shaped
from gateway.executors.python.results import valid_text
from gateway.json_types import Json, JsonObject, empty
from gateway.language.templates.caller import CALLER
from gateway.limits.concurrency import ConcurrencyPermit
from gateway.limits.fair_semaphore import Limit
from gateway.plugin import Answer, Context, ListKind, LogLevel, Sample, Task, ToolError
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests import requests as questions
from gateway.protocol.call.input_requests.mrtr_requester import MrtrRequester
from gateway.protocol.call.input_requests.requester import InputRequester, RunSuspension, Suspension, Where, both
from gateway.protocol.call.input_requests.requests import CONFIRMATION_KEY
from gateway.protocol.call.input_requests.session_requester import SessionRequester
from gateway.telemetry.trace import Trace, TracedStep, untraced
from gateway.wire import jsonrpc, meta
from gateway.wire.input_requests import InputRequest

T = TypeVar("T")

_KINDS: Final[tuple[ListKind, ...]] = get_args(ListKind)
_PRIMITIVE: Final = "mcp_gateway.primitive"
_SECTIONS: Final[Mapping[type[Primitive], str]] = {
    Tool: "tools",
    Resource: "resources",
    ResourceTemplate: "resources",
    Prompt: "prompts",
}


class TaskOfRun(Protocol):
    @property
    def is_rerun(self) -> bool:
        """Whether the task already existed when the run started."""

    @property
    def facts(self) -> Task | None:
        """The task as plugins see it, or None until the task is created."""

    def open_requester(self, call: Call, *, definition: str) -> InputRequester:
        """Return the object that sends the run's input requests. `definition` identifies the version of the tool."""


class Run(msgspec.Struct, eq=False):
    """One run of a tool, resource or prompt. No messages are sent after the run has ended.

    Entering the context counts the run against the `rate_limit`. `start` acquires the concurrency permit and sets the
    deadline. Exiting the context releases the permit.
    """

    call: Call
    primitive: Primitive
    is_completion: bool = False
    """Whether the run suggests values for an argument. Such a run is not rate limited and cannot send input requests.
    """
    outer: "Run | None" = None
    """The run that started this run, such as a tool that reads a resource. The outer run holds the caller's permits."""
    task_of_run: TaskOfRun | None = None
    arguments: JsonObject = empty()
    variables: JsonObject = empty()
    is_over: bool = False
    has_switched: bool = False
    """Whether the run has enabled or disabled a tool, resource or prompt."""
    _began: float = 0.0
    _deadline: Deadline | None = None
    _permit: ConcurrencyPermit | None = None
    _opened: InputRequester | None = None
    _suspension: RunSuspension | None = None
    _whole: "Run | None" = None
    _trace: Trace | None = None
    _step: AbstractContextManager[TracedStep] | None = None

    async def __aenter__(self) -> Self:
        """Count the run against the rate limit. Raise OverLimitError if the primitive was called too often."""
        if self.primitive.rate_limit is not None and (limit := self._rate_limit) is not None:
            await self.call.server.rate_limiter.acquire(self._rate_name, limit, caller=self._rate_key)
        if not self.is_completion and self.outer is None and self.call.has_input_responses:
            requester = self.open_requester()
            if isinstance(requester, MrtrRequester):
                await requester.take_responses()
        return self

    async def start(self, arguments: JsonObject) -> Invocation:
        """Wait for a permit, and return the invocation. Raise ExecutionError if the deadline passes first."""
        primitive = self.primitive
        self.arguments, self.variables = arguments, self.with_caller(arguments)
        # The deadline includes the wait for the permit.
        self._began = asyncio.get_running_loop().time()
        call, concurrency = self.call, self.call.server.concurrency
        key = f"{call.method if self.outer is None else 'resources/read'}/{primitive.name}"
        limit = (primitive.concurrency, primitive.queue)
        # The outer run holds the caller's permits, so an inner run must not wait for more of them.
        limits = call.catalog.limits if self.outer is None else NO_LIMITS
        permit = None
        if limits.concurrency.per_caller is None and limits.concurrency.in_all is None:
            permit = concurrency.try_acquire(key, limit)
        self._permit = permit or await self._acquired(key, limit, limits)
        if call.server.trace is not untraced:
            self._step = self.trace.step("run", kind="internal", facts={_PRIMITIVE: primitive.name})
            self._step.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the permit. After `AwaitingInput`, also refund the rate limit, because the run will be repeated."""
        # Set this first, so that background tasks of the run send no more messages.
        self.is_over = True
        if self._step is not None:
            self._step.__exit__(kind, error, trace)
        if self._permit is not None:
            # Release the permit before the waits below, which must not delay other calls.
            self._permit.release()
        if self.call.activity.has_sent or self.has_switched:
            await self._send_rest(error)
        try:
            if self._opened is not None:
                await self._opened.close(error)
        except AwaitingInput:
            await self._refund()
            raise
        if isinstance(error, AwaitingInput):
            await self._refund()

    async def _send_rest(self, error: BaseException | None) -> None:
        try:
            if self.call.activity.has_sent and self.outer is None:
                queue = self.call.activity.queue
                if isinstance(error, asyncio.CancelledError):
                    queue.cancel()
                await queue.drain()
            if self.has_switched:  # the caller's next request may reach another replica
                await self.call.server.notifier.others_follow()
        except asyncio.CancelledError as cancelled:
            if self._opened is not None:
                await self._opened.close(cancelled)  # otherwise its requests stay open until `ask_timeout`
            raise

    async def _acquired(self, key: str, limit: Limit, limits: Limits) -> ConcurrencyPermit:
        call = self.call
        try:
            return await call.server.concurrency.acquire(
                key,
                limit,
                caller=call.caller.rate_limit_key,
                deadline=self.deadline.at,
                of_caller=_limit(limits.concurrency.per_caller, limits.queue.per_caller),
                of_all=_limit(limits.concurrency.in_all, limits.queue.in_all),
            )
        finally:
            call.activity.record_wait("concurrency", self._began)

    @property
    def deadline(self) -> Deadline:
        """The deadline of the run. Only available after `start`."""
        if self._deadline is None:
            assert self._began  # noqa: S101 - see `permit`
            seconds = self.primitive.timeout.total_seconds()
            self._deadline = Deadline(self._began + seconds, seconds)
        return self._deadline

    @property
    def permit(self) -> ConcurrencyPermit:
        """The permit of the run. Only available after `start`."""
        assert self._permit is not None  # noqa: S101 - executors only receive started runs
        return self._permit

    @property
    def context(self) -> Context:
        return self._whole or self

    def narrowed(self, *, arguments: JsonObject, deadline: Deadline) -> Invocation:
        variables = self.with_caller(arguments)
        return replace(self, arguments=arguments, variables=variables, _deadline=deadline, _whole=self._whole or self)

    def with_caller(self, arguments: JsonObject) -> JsonObject:
        """Return the template variables: the arguments, and `caller` if a template uses this variable."""
        # `caller` comes last, because an open schema allows an argument with the same name.
        return {**arguments, CALLER: self.call.caller_facts} if self.primitive.caller_facts else arguments

    @property
    def caller_values(self) -> bytes:
        return digest_of_facts(self.call.caller_facts, self.primitive.caller_facts)

    @property
    def trace(self) -> Trace:
        if self._trace is None:
            self._trace = self.call.server.trace(self.call.trace)
        return self._trace

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
        return None if self.task_of_run is None else self.task_of_run.facts

    @property
    def http(self) -> "plugin.HttpClient":
        return self.call.server.services.http.shared

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        if self.is_over:
            return _nothing()
        masked = None if message is None else self.call.catalog.sanitizer.text(valid_text(message))
        self.call.activity.record_progress(value, total, masked)
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
        # MCP 2026-07-28 server/utilities/logging, "Per-request log level".
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
            self.call.server.notifier.resource_updated(name)
        self.call.server.notifier.tell_others("updated", "resources", uri)

    def enable(self, kind: ListKind, name: str) -> None:
        self.call.server.store.enable(_known(kind), name)
        self.call.server.notifier.tell_others("enabled", kind, name)
        self.has_switched = True

    def disable(self, kind: ListKind, name: str) -> None:
        self.call.server.store.disable(_known(kind), name)
        self.call.server.notifier.tell_others("disabled", kind, name)
        self.has_switched = True

    async def elicit(self, key: str, message: str, schema: JsonObject) -> Answer:
        return questions.read_answer(await self._answer(key, questions.elicitation(message, schema)))

    async def elicit_url(self, key: str, message: str, url: str) -> Answer:
        return questions.read_answer(await self._answer(key, questions.url_elicitation(message, url)))

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
        return questions.read_sample(await self._answer(key, questions.sampling(messages, fields)))

    async def list_roots(self, key: str) -> Sequence[JsonObject]:
        return questions.read_roots(await self._answer(key, questions.roots()))

    async def ask(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        return await self._asked(requests, None)

    async def ask_before(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        return await self._asked(requests, "before")

    async def ask_inside(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        return await self._asked(requests, "inside")

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        return await self.requester.once(key, function)

    def close_stream(self, retry_ms: int | None = None) -> Awaitable[None]:
        """Close the connection if the client can reconnect to receive the remaining messages."""
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
        # This key is reserved for the user's confirmation of the tool.
        if CONFIRMATION_KEY in asked:
            raise ToolError(f"The key {CONFIRMATION_KEY} is reserved")
        masked = {key: self._masked(questions.checked(key, question)) for key, question in asked.items()}
        has_lines = not _has_breaks(self.call.params)
        put = {key: questions.shown(question, has_lines=has_lines) for key, question in masked.items()}
        if self.call.activity.has_sent:
            await self.call.activity.queue.drain()  # earlier messages are sent before the request
        found = await self.requester.request(put, pause=self.suspension, where=where)
        return {key: questions.with_names_of(masked[key], answer) for key, answer in found.items()}

    def _masked(self, question: InputRequest) -> InputRequest:
        return InputRequest(question.method, self.call.catalog.masker.json(question.params))

    def open_requester(self) -> InputRequester | None:
        """Return the object that sends input requests, or None if the run cannot send input requests."""
        # basic/patterns/mrtr, "Supported Requests": completions do not support input requests.
        if self.is_completion:
            return None
        if self.outer is not None:
            return self.outer.open_requester()
        if self._opened is None:
            call = self.call
            if self.task_of_run is not None:
                self._opened = self.task_of_run.open_requester(call, definition=self.primitive.version)
            elif call.session is not None:
                self._opened = SessionRequester(call, call.session, ask_timeout=self.primitive.ask_timeout)
            else:
                self._opened = MrtrRequester(call, definition=self.primitive.version)
        return self._opened

    @property
    def suspension(self) -> Suspension:
        if self._suspension is None:
            waited = partial(self.call.activity.record_wait, "answer")
            self._suspension = RunSuspension(self.deadline, self.permit, waited=waited)
        return self._suspension if self.outer is None else partial(both, self.outer.suspension, self._suspension)

    @property
    def requester(self) -> InputRequester:
        if self.is_over:
            raise ToolError("The call has ended")
        if (requester := self.open_requester()) is None:
            raise ToolError("Only calls of tools, prompts and resources can send input requests")
        return requester

    def _dropped(self, method: str) -> Awaitable[None]:
        """Count a dropped message. Return the future of the last queued message, which a plugin can await."""
        self.call.server.notifier.counters.dropped[method] += 1
        return self.call.activity.queue.last

    async def _send_log(self, level: LogLevel, written: bytes, logger: str | None) -> None:
        # Mask large data in a thread.
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

    async def read_resource(self, uri: str) -> Sequence[JsonObject]:
        contents, _ = await read_resource(uri, self.call, self)
        return contents

    @property
    def _rate_key(self) -> str:
        caller, template = self.call.caller, self.primitive.rate_key
        if template is None:
            return caller.rate_limit_key
        # The key includes the realm, because two issuers can use the same value for different tenants.
        return f"key {caller.realm} {template.render({CALLER: self.call.caller_facts})}"

    @property
    def _rate_limit(self) -> RateLimit | None:
        # The first run of a task was already counted.
        if self.is_completion or (self.task_of_run is not None and self.task_of_run.is_rerun):
            return None
        return self.primitive.rate_limit

    @property
    def _rate_name(self) -> str:
        return f"{_SECTIONS[type(self.primitive)]}.{self.primitive.name}.rate_limit"

    async def _refund(self) -> None:
        if (limit := self._rate_limit) is not None:
            await self.call.server.rate_limiter.refund(self._rate_name, limit, caller=self._rate_key)


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
    """Return whether `value` contains line breaks or tabs, which could forge lines in a message."""
    match value:
        case str():
            # Also check the decoded text, because variables of URIs are percent-decoded later.
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


def _limit(running: int | None, waiting: int) -> Limit | None:
    return None if running is None else (running, waiting)


def check_access(primitive: Primitive, call: Call) -> None:
    """Raise InsufficientScopeError if the caller lacks a scope."""
    if primitive.access.scopes and not call.caller.identity.holds(primitive.access.scopes):
        raise InsufficientScopeError(primitive.access.scopes)


def check_client(primitive: Primitive, call: Call) -> None:
    """Raise MissingCapabilityError if the client lacks a capability that the primitive requires."""
    if not primitive.required_capabilities:
        return
    missing = {
        name: wanted
        for name, wanted in primitive.required_capabilities.items()
        if call.terms.capabilities.get(name) is None
    }
    if missing:
        raise MissingCapabilityError(missing)


async def read_resource(uri: str, call: Call, outer: Run | None = None) -> tuple[Sequence[JsonObject], JsonObject]:
    """Return the contents of a resource in the format of 2026-07-28, and the `_meta` of an upstream server's result.

    A run that reads a resource (`outer`) can also read resources outside the caller's view.

    Raises:
        ResourceNotFoundError: no resource has this URI.
        ResourceError: the read failed.
    """
    stored = await call.server.services.output_store.read(uri, caller=call.caller.owner_key)
    if stored is not None:
        return [stored], {}
    catalog = call.catalog if outer is None else call.catalog.without_view or call.catalog
    found = catalog.resource(uri)
    if found is None:
        raise ResourceNotFoundError(uri)
    resource, variables = found
    check_access(resource, call)
    check_client(resource, call)
    try:
        async with Run(call, resource, outer=outer, task_of_run=None if outer is None else outer.task_of_run) as run:
            invocation = await run.start(variables)
            outcome = await resource.executor.execute(invocation)
            contents = await shaped(
                partial(resource.contents, outcome, uri),
                size=outcome.size,
                call=invocation,
                threads=call.server.services.worker_threads,
            )
            return contents, call.catalog.sanitizer.json(outcome.meta) if isinstance(outcome, Relayed) else {}
    except ResourceNotFoundError as error:
        raise ResourceNotFoundError(uri) from error  # with the requested URI instead of the backend's
    except OverLimitError:
        raise  # see `Method.refused`
    except ExecutionError as error:
        reason = call.catalog.sanitizer.text(str(error))
        explanation = f"The resource {uri} could not be read: {reason}"
        raise ResourceError(uri, code=ErrorCode.INTERNAL_ERROR, message=reason, explanation=explanation) from error
