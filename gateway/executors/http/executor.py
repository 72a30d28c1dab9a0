import asyncio
import hashlib
import random
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import responses
from itertools import count
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec
import structlog
from msgspec.structs import replace
from multidict import CIMultiDictProxy

from gateway import exact_json
from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import Connection, Http, HttpPages
from gateway.config.models.definition_keys import Output
from gateway.config.secrets.redactor import Redactor
from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.executors.http.pages import JoinedPages, Pages
from gateway.executors.http.request import RequestTemplate, compile_request
from gateway.executors.invocation import Executor, Explanation, Failure, Invocation, Outcome, RawOutput
from gateway.executors.output.compiler import compile_select
from gateway.executors.output.media_types import JSON, decoded
from gateway.executors.output.sanitizer import Sanitizer
from gateway.executors.output.size_limit import DEFAULT_MAX_SIZE
from gateway.executors.sign_in import with_sign_in
from gateway.json_types import Json, JsonObject
from gateway.language.scope import Scope
from gateway.net.address_guard import compile_policy
from gateway.net.authorization import Authorization, OutboundServices, check_no_authorization
from gateway.net.request import REJECTIONS, Header, Rejection, Request
from gateway.net.request_facts import facts_of, note_status, span_attributes
from gateway.net.retries import IDEMPOTENT, RetryPolicy, compile_retry, pause_before, statuses_of
from gateway.net.sender import ConnectionFailedError, Response, Sender, compile_sender, valid_text, warn_if_blocked
from gateway.telemetry.trace import TRACEPARENT, TraceContext
from gateway.threads import DaemonThreadPool, run_in_thread

log: Final = structlog.get_logger(__name__)

T = TypeVar("T")

_SERVER_ERROR: Final = 500
MAX_EXCERPT: Final = 2000
"""The maximum number of characters of an error response that the model sees."""
_WITHOUT_CONTENT: Final = frozenset({201, 202, 204, 205})
"""Statuses of successful responses that need no content (RFC 9110 §15.3)."""
_NoResponse = ConnectionFailedError | DeadlineExceededError


class HttpExecutor(msgspec.Struct, frozen=True, kw_only=True):
    request: RequestTemplate
    sender: Sender
    success: frozenset[int]
    retry: RetryPolicy
    timeout: timedelta | None
    """The time limit for one attempt. The invocation's deadline limits all attempts together."""
    sanitizer: Sanitizer
    threads: DaemonThreadPool
    authorization: Authorization | None = None
    pages: Pages | None = None
    has_output_template: bool = False
    """Whether a template needs the status and the headers of responses."""

    async def execute(self, invocation: Invocation) -> Outcome:
        try:
            request = await self._render(invocation)
            return await with_sign_in(invocation, lambda: self._fetch(request, invocation))
        except DeadlineExceededError as error:
            raise invocation.deadline.exceeded(error) from error

    async def _fetch(self, request: Request, invocation: Invocation) -> Outcome:
        response = await self._send_with_retries(request, invocation)
        outcome = self._outcome(response, request.url.raw_host or "")
        if self.pages is None or not isinstance(outcome, RawOutput):
            return outcome
        joined = JoinedPages(self.pages, request, crosses_origins=self.sender.max_redirects > 0)
        following = joined.add(response, request)
        while following is not None:
            number = joined.count + 1
            try:
                response = await self._send_with_retries(following, invocation)
            except ConnectionFailedError as error:
                raise ExecutionError(f"page {number}: {error}") from error
            page = self._outcome(response, following.url.raw_host or "")
            if isinstance(page, Failure):
                return Failure(text=f"page {number}: {page.text}")
            following = joined.add(response, following)
        note = joined.note and f"[… pages after page {joined.count} are missing: {joined.note} …]"
        if joined.count > 1:
            return replace(outcome, data=exact_json.dumps(joined.value), media_type=JSON, note=note)
        return replace(outcome, note=note)

    async def _render(self, invocation: Invocation) -> Request:
        if not self.request.reads_files:
            return self.request.render(invocation)
        render = partial(self.request.render, invocation)
        return await run_in_thread(render, what="Reading the files", call=invocation, threads=self.threads)

    async def cache_key(self, invocation: Invocation) -> bytes:
        """Return a digest of the request, and of the caller's identity if the authorization depends on the caller."""
        subject = invocation.call.caller.subject if self.authorization and self.authorization.is_per_caller else None
        token = None if subject is None or subject.access_token is None else subject.access_token.secret
        who = None if subject is None else (subject.key, token)
        request = await self._render(invocation)
        # `repr` quotes strings, so different values never have the same digest.
        return hashlib.sha256(repr((request.key, who)).encode()).digest()

    def explain(self, invocation: Invocation) -> Explanation:
        request = self.request.render(invocation)
        facts: dict[str, Json] = {
            **facts_of(request),
            **self.sender.facts(request.url.raw_host or ""),
            "signs_in_with": None if self.authorization is None else self.authorization.summary,
            "attempts": self.retry.attempts,
            "timeout_seconds": None if self.timeout is None else self.timeout.total_seconds(),
            "pages": None if self.pages is None else f"at most {self.pages.max}",
        }
        return Explanation(does="sends a request", facts=facts)

    async def _send_with_retries(self, request: Request, invocation: Invocation) -> Response:
        attempt = 1
        while True:
            result = await self._attempt(request, invocation)
            pause = self._pause_after(result, attempt)
            if pause is None or asyncio.get_running_loop().time() + pause >= invocation.deadline.at:
                break
            await asyncio.sleep(pause)
            attempt += 1
        if isinstance(result, Response):
            return result
        raise result

    async def _attempt(self, request: Request, invocation: Invocation) -> Response | _NoResponse:
        deadline = invocation.deadline.within(None if self.timeout is None else self.timeout.total_seconds())
        # Requests for pages of another origin are sent without credentials.
        if self.authorization is None or request.home is not None:
            return await self._send(request, invocation, deadline=deadline)
        subject = invocation.call.caller.subject
        for attempt in count(1):
            signed = await _in_time(self.authorization.sign(request, subject), deadline)
            result = await self._send(signed, invocation, deadline=deadline)
            # RFC 9110 §15.5.2: a request with a 401 response was not applied, so any method can be repeated.
            if not isinstance(result, Response) or result.status not in REJECTIONS or result.is_redirected:
                break
            rejected = Rejection(signed, result.status, result.headers, attempt)
            if not await _in_time(self.authorization.renew(rejected, subject), deadline):
                break
        return result

    async def _send(self, request: Request, invocation: Invocation, *, deadline: float) -> Response | _NoResponse:
        with invocation.trace.step(
            request.method, kind="client", facts=span_attributes(request.method, request.url)
        ) as step:
            try:
                response = await self.sender.send(_traced(request, step.context), deadline=deadline)
            # Return these errors, so that `_send_with_retries` can retry. Any other ExecutionError ends the call.
            except (ConnectionFailedError, DeadlineExceededError) as error:
                step.fail("connection")
                return error
            note_status(step, response.status)
            return response

    def _pause_after(self, result: Response | _NoResponse, attempt: int) -> float | None:
        if attempt >= self.retry.attempts:
            return None
        headers: Mapping[str, str] = {}
        if isinstance(result, Response):
            if result.status in self.success or result.status not in self.retry.statuses:
                return None
            headers = result.headers
        elif not self.retry.after_failures:
            return None
        return pause_before(attempt + 1, jitter=random.random(), headers=headers, now=datetime.now(UTC))  # noqa: S311 - spreads load

    def _outcome(self, response: Response, host: str) -> RawOutput | Failure:
        if response.status not in self.success:
            if response.status >= _SERVER_ERROR:
                log.warning("backend failed", status=response.status, host=host)
            return Failure(text=self._failure(response))
        return RawOutput(
            data=response.body,
            media_type=_field(response.headers, "Content-Type"),
            variables=_variables(response) if self.has_output_template else {},
            success="\n".join(_summary(response)) if response.status in _WITHOUT_CONTENT else None,
        )

    def _failure(self, response: Response) -> str:
        said = _summary(response)
        # Secrets are masked before the text is shortened.
        text = decoded(response.body[: 16 * MAX_EXCERPT], _field(response.headers, "Content-Type"))
        # `head` also removes the beginning of a secret at the end of a truncated body.
        clean = self.sanitizer.text if len(response.body) <= 16 * MAX_EXCERPT else self.sanitizer.head
        excerpt = clean(text).strip()
        shown = excerpt if len(excerpt) <= MAX_EXCERPT else f"{excerpt[:MAX_EXCERPT]}…"
        return "\n".join(filter(None, [*map(self.sanitizer.text, said), shown]))


def _variables(response: Response) -> JsonObject:
    headers: JsonObject = {name.lower(): _field(response.headers, name) for name in response.headers}
    return {"status": response.status, "headers": headers}


async def _in_time(step: Awaitable[T], deadline: float) -> T:
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(deadline):
            return await step
    except TimeoutError as error:
        raise DeadlineExceededError("Signing in", deadline - began) from error


def _summary(response: Response) -> list[str]:
    said = [f"HTTP {response.status} {response.reason or responses.get(response.status, '')}".rstrip()]
    if location := _field(response.headers, "Location"):
        said.append(f"Location: {location}")
    return said


def _field(headers: CIMultiDictProxy[str], name: str) -> str | None:
    # RFC 9110 §5.3: multiple values are joined with commas.
    values = headers.getall(name, None)
    return None if values is None else valid_text(", ".join(values))


def _traced(request: Request, trace: TraceContext | None) -> Request:
    """Add trace headers unless the request already contains a `traceparent` header."""
    if trace is None or any(header.name.lower() == TRACEPARENT for header in request.headers):
        return request
    fields = (Header(name=name, value=value, is_bound=False) for name, value in trace.fields.items())
    return replace(request, headers=(*request.headers, *fields))


def compile_http(  # noqa: PLR0913 - the configuration and its context
    config: Http,
    *,
    connections: Mapping[str, Connection],
    scope: Scope,
    services: OutboundServices,
    redactor: Redactor,
    authorizations: Mapping[str, Authorization] = MappingProxyType({}),
    idempotent: bool = False,
    output: Output | None = None,
) -> Executor:
    """Compile an `http:` backend. `idempotent` allows retries with every method. `output` is None for resources."""
    shared = _find_connection(config, connections, scope)
    connection_scope = replace(scope, problems=scope.problems.root.at("connections", config.connection or ""))
    sender = _compile_sender(config, shared, scope=scope, connection_scope=connection_scope, services=services)
    request = compile_request(config, shared, scope=scope, connection_scope=connection_scope)
    if shared is not None:
        if shared.auth is not None:
            check_no_authorization(config.headers, scope.at("headers").problems)
        warn_if_blocked(shared.base_url, sender.policy, connection_scope.at("base_url").problems)
    elif not scope.problems.is_lenient:
        match request.url.authority:
            case [str(host)]:
                warn_if_blocked(f"http://{host}", sender.policy, scope.problems.at("url"))
    _check_cache(config, request.method, scope)
    return HttpExecutor(
        request=request,
        sender=sender,
        success=statuses_of(config.success),
        retry=_compile_retry(config, shared, is_repeatable=idempotent or request.method in IDEMPOTENT, scope=scope),
        timeout=config.timeout or (shared.timeout if shared else None),
        sanitizer=Sanitizer(redactor=redactor),
        threads=services.worker_threads,
        authorization=authorizations.get(config.connection or ""),
        pages=None if config.pages is None else _compile_pages(config.pages, request.method, output, scope.at("pages")),
        has_output_template=output is not None and output.template is not None,
    )


def _compile_pages(config: HttpPages, method: str, output: Output | None, scope: Scope) -> Pages:
    if method != "GET":
        scope.problems.error(f"requires GET (got {method})")
    if output is None:
        scope.problems.error("can only be used in a tool, because a resource cannot report missing pages")
        output = Output()
    return Pages(
        next=None if config.next == "link" else compile_select(config.next, scope.at("next")),
        max=config.max,
        max_bytes=DEFAULT_MAX_SIZE if output.max_size is None else output.max_size,
        select=None if output.select is None else compile_select(output.select, replace(scope, problems=Problems())),
    )


def _find_connection(config: Http, connections: Mapping[str, Connection], scope: Scope) -> Connection | None:
    name = config.connection
    if name is None or name in connections:
        return connections.get(name or "")
    scope.at("connection").problems.error(f"unknown connection `{name}`{did_you_mean(name, [*connections])}")
    # Return a placeholder, so that the remaining checks can run. `invalid` never resolves (RFC 6761 §6.4).
    return Connection(base_url="https://invalid")


def _compile_sender(
    config: Http, shared: Connection | None, *, scope: Scope, connection_scope: Scope, services: OutboundServices
) -> Sender:
    sender = Sender(clients=services.http)
    if shared is not None:
        sender = compile_sender(shared, connection_scope.problems, clients=services.http)
    if config.allow_private is not None:
        sender = replace(sender, policy=compile_policy(config.allow_private, scope.problems.at("allow_private")))
    return replace(sender, max_redirects=config.follow_redirects)


def _compile_retry(config: Http, shared: Connection | None, *, is_repeatable: bool, scope: Scope) -> RetryPolicy:
    if is_repeatable:
        return compile_retry(config.retry or (shared.retry if shared else None))
    if config.retry is not None:
        scope.at("retry").problems.error(
            "a retry could apply the request twice. `retry` requires GET, HEAD, PUT or DELETE, or a tool with "
            "`annotations: {idempotent: true}`"
        )
    return RetryPolicy()


def _check_cache(config: Http, method: str, scope: Scope) -> None:
    if config.cache is not None and method not in {"GET", "HEAD"}:
        scope.at("cache").problems.error(f"requires GET or HEAD (got {method})")
