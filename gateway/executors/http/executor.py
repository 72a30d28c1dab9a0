"""The HTTP backend: a compiled request, sent until it succeeds or may not be sent again, and what its answer means."""

import asyncio
import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Final, Protocol

from gateway.config.backends import Connection, Http
from gateway.config.problems import Problems
from gateway.config.secrets import Redactor
from gateway.executors.cache import ResponseCache
from gateway.executors.explanation import Explanation
from gateway.executors.http.address_guard import AddressPolicy, compile_policy
from gateway.executors.http.failures import ConnectionFailedError
from gateway.executors.http.request import Header, Request, RequestTemplate, compile_request
from gateway.executors.http.retries import REPEATABLE, RetryPolicy, compile_retry, pause_before, statuses_of
from gateway.executors.http.sender import Response, Sender, check_proxy
from gateway.executors.http.shown import facts_of
from gateway.executors.http.tls import ClientIdentity, compile_tls
from gateway.executors.http.traced import note_status, shown_facts
from gateway.executors.invocation import Executor, Failure, Invocation, Outcome, RawOutput
from gateway.executors.output.plain_text import clean
from gateway.executors.scope import Scope
from gateway.executors.services import Services
from gateway.executors.templates.expressions import did_you_mean
from gateway.executors.trace import TRACEPARENT, TraceContext
from gateway.executors.uris.urls import base_url_mistake
from gateway.json_types import Json

MAX_EXCERPT: Final = 2000
"""Characters of an unsuccessful answer that the model is shown."""


class Sending(Protocol):
    """A way to a service: see `Sender`."""

    async def send(self, request: Request, *, deadline: float) -> Response: ...
    def facts(self, host: str) -> Mapping[str, Json]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpExecutor:
    request: RequestTemplate
    sender: Sending
    success: frozenset[int]
    retry: RetryPolicy
    timeout: timedelta | None
    """Of one attempt; the invocation's deadline bounds them all."""
    redactor: Redactor
    cache: ResponseCache
    cache_ttl: timedelta | None
    cache_prefix: str

    async def execute(self, invocation: Invocation) -> Outcome:
        request = self.request.render(invocation)
        if self.cache_ttl is None:
            return self._outcome(await self._answer(request, invocation))
        key = (self.cache_prefix, request.key)
        outcome = self.cache.get(key)
        if outcome is None:
            outcome = self._outcome(await self._answer(request, invocation))
            self.cache.put(key, outcome, ttl=self.cache_ttl)
        return outcome

    def explain(self, invocation: Invocation) -> Explanation:
        request = self.request.render(invocation)
        facts: dict[str, Json] = {
            **facts_of(request),
            **self.sender.facts(request.url.host or ""),
            "attempts": self.retry.attempts,
            "timeout_seconds": None if self.timeout is None else self.timeout.total_seconds(),
            "cache_seconds": None if self.cache_ttl is None else self.cache_ttl.total_seconds(),
        }
        given = {name: value for name, value in facts.items() if value is not None}
        return Explanation(does="sends a request", facts=given)

    async def _answer(self, request: Request, invocation: Invocation) -> Response:
        """Send until an answer need not, or may not, be asked for again; the last one counts."""
        attempt = 1
        while True:
            result = await self._attempt(request, invocation)
            pause = self._pause_after(result, attempt)
            if pause is None or asyncio.get_running_loop().time() + pause >= invocation.deadline:
                break
            await asyncio.sleep(pause)
            attempt += 1
        if isinstance(result, ConnectionFailedError):
            raise result
        return result

    async def _attempt(self, request: Request, invocation: Invocation) -> Response | ConnectionFailedError:
        deadline = invocation.deadline
        if self.timeout is not None:
            deadline = min(deadline, asyncio.get_running_loop().time() + self.timeout.total_seconds())
        with invocation.trace.step(
            request.method, kind="client", facts=shown_facts(request.method, request.url)
        ) as step:
            try:
                response = await self.sender.send(_traced(request, step.context), deadline=deadline)
            except ConnectionFailedError as error:
                step.fail("connection")
                return error
            note_status(step, response.status)
            return response

    def _pause_after(self, result: Response | ConnectionFailedError, attempt: int) -> float | None:
        """Seconds before the next attempt; None if there is to be none."""
        if attempt >= self.retry.attempts:
            return None
        headers: Mapping[str, str] = {}
        if isinstance(result, Response):
            if result.status in self.success or result.status not in self.retry.statuses:
                return None
            headers = result.headers
        elif not self.retry.after_failures:
            return None
        return pause_before(attempt + 1, dice=random.random(), headers=headers, now=datetime.now(UTC))  # noqa: S311 - spreads load

    def _outcome(self, response: Response) -> Outcome:
        if response.status not in self.success:
            return Failure(text=self._failure(response))
        headers: dict[str, str] = {}
        for name, value in response.headers.items():
            key = name.lower()
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
        return RawOutput(
            data=response.body,
            media_type=headers.get("content-type"),
            variables={"status": response.status, "headers": headers},
        )

    def _failure(self, response: Response) -> str:
        """Say what the server answered: status, reason, where it points to, and how its text begins."""
        said = [f"HTTP {response.status} {response.reason or _phrase(response.status)}".rstrip()]
        if location := response.headers.get("Location"):
            said.append(f"Location: {location}")
        # Masked before it is cut, lest half a secret remain.
        text = response.body[: 16 * MAX_EXCERPT].decode(errors="replace")
        excerpt = self.redactor.text(clean(text)).strip()
        if len(response.body) > 16 * MAX_EXCERPT:
            excerpt = self.redactor.before_gap(excerpt)
        if len(excerpt) > MAX_EXCERPT:
            excerpt = f"{excerpt[:MAX_EXCERPT]}…"
        return "\n".join([*(self.redactor.text(clean(line)) for line in said), *filter(None, [excerpt])])


def _traced(request: Request, trace: TraceContext | None) -> Request:
    """Hand the trace on, unless the file or the caller's forwarded fields say which one it is."""
    if trace is None or any(header.name.lower() == TRACEPARENT for header in request.headers):
        return request
    fields = (Header(name=name, value=value, is_bound=False) for name, value in trace.fields.items())
    return replace(request, headers=(*request.headers, *fields))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def compile_http(  # noqa: PLR0913 - one fact of the surroundings each
    config: Http,
    *,
    connections: Mapping[str, Connection],
    scope: Scope,
    services: Services,
    redactor: Redactor,
    idempotent: bool = False,
) -> Executor:
    """Compile an `http:` block, at which `scope` stands; mistakes go to its problems, and nothing then executes it.

    `idempotent` is what the tool's annotations say.
    """
    connection = _find_connection(config, connections, scope)
    request = compile_request(config, connection=connection, scope=scope)
    shared = connection[1] if connection else None
    return HttpExecutor(
        request=request,
        sender=_compile_sender(config, connection, scope=scope, services=services),
        success=statuses_of(config.success),
        retry=_compile_retry(config, shared, is_repeatable=idempotent or request.method in REPEATABLE, scope=scope),
        timeout=config.timeout or (shared.timeout if shared else None),
        redactor=redactor,
        cache=services.cache,
        cache_ttl=_compile_cache(config, request.method, scope),
        cache_prefix=hashlib.sha256(repr((scope.problems.path, config, shared)).encode()).hexdigest(),
    )


def check_connection(connection: Connection, problems: Problems) -> None:
    """Report what is wrong with a connection by itself, whoever uses it; `problems` looks at its place."""
    if mistake := base_url_mistake(connection.base_url):
        problems.at("base_url").error(mistake)
    if connection.proxy is not None:
        check_proxy(connection.proxy, problems.at("proxy"))
    compile_policy(connection.allow_private, problems.at("allow_private"))
    compile_tls(connection.tls, problems.at("tls"))


def _find_connection(
    config: Http, connections: Mapping[str, Connection], scope: Scope
) -> tuple[str, Connection] | None:
    name = config.connection
    if name is None:
        return None
    if name not in connections:
        scope.at("connection").problems.error(f"there is no connection `{name}`{did_you_mean(name, [*connections])}")
        return name, Connection(base_url="https://invalid")
    check_connection(connections[name], scope.problems.root.at("connections", name))
    return name, connections[name]


def _compile_sender(
    config: Http, connection: tuple[str, Connection] | None, *, scope: Scope, services: Services
) -> Sender:
    name, shared = connection or ("", None)
    place = scope.problems.root.at("connections", name)
    return Sender(
        clients=services.http,
        policy=_compile_policy(config, shared, scope.problems, place),
        proxy=shared.proxy if shared else None,
        identity=compile_tls(shared.tls, place.at("tls")) if shared else ClientIdentity(),
        max_redirects=config.follow_redirects,
    )


def _compile_policy(config: Http, shared: Connection | None, own: Problems, place: Problems) -> AddressPolicy:
    """What the tool says goes before what its connection says."""
    if config.allow_private is not None or shared is None:
        return compile_policy(config.allow_private or False, own.at("allow_private"))
    return compile_policy(shared.allow_private, place.at("allow_private"))


def _compile_retry(config: Http, shared: Connection | None, *, is_repeatable: bool, scope: Scope) -> RetryPolicy:
    if is_repeatable:
        return compile_retry(config.retry or (shared.retry if shared else None))
    if config.retry is not None:
        scope.at("retry").problems.error(
            "this method may do its work twice; `retry` goes with GET, HEAD, PUT, DELETE, or a tool with "
            "`annotations: {idempotent: true}`"
        )
    return RetryPolicy()


def _compile_cache(config: Http, method: str, scope: Scope) -> timedelta | None:
    if config.cache is not None and method not in {"GET", "HEAD"}:
        scope.at("cache").problems.error(f"goes with GET and HEAD, not with {method}")
    return config.cache
