"""The admin API: health, readiness, status, metrics, log level and reload. None of these paths is MCP's.

They stand on the main listener or on one of their own. Probes learn nothing that needs guarding and are answered for
everybody; the rest is for operators alone, and for anybody else it is not there.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Final, Protocol

import msgspec
import structlog
from aiohttp import web

from gateway.json_types import JsonObject
from gateway.protocol.exchange import FORWARDING_HEADERS
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.transports.http.host_and_origin import is_loopback_address, is_loopback_host
from gateway.transports.http.middleware import Handler, Middleware
from gateway.transports.http.request import Endpoint, HttpRequest

OPERATORS: Final = frozenset({"gateway:admin"})
"""The scope that operators hold."""

log: Final = structlog.get_logger()

_READ: Final = ("GET", "HEAD")
_PAGE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""What a browser or a cache may not do with a page that says how things are just now. There is no HTML to protect."""
_UNTOLD: Final = "there are problems; /-/status names them, to operators"


class Tasks(Protocol):
    """The daemon's tasks. What they answer and were asked is their callers' alone."""

    async def listed(self) -> JsonObject: ...
    async def shown(self, task_id: str) -> JsonObject | None:
        """One task; None if there is none."""

    async def cancel(self, task_id: str) -> JsonObject | None:
        """Cancel a task, and return how it is now; None if there is none."""


class Workers(Protocol):
    """All workers of the daemon, of which this process is one."""

    async def status(self) -> JsonObject: ...
    async def readiness(self, own: JsonObject) -> JsonObject: ...
    async def set_log_level(self, level: str) -> None:
        """Set the level of the others."""


class BrowserConsole(Protocol):
    """The page in the browser, whose sign-in opens `/-/api/…`, too."""

    def mount(self, router: web.UrlDispatcher, door: Middleware, *, prefixes: Iterable[str]) -> None:
        """Add its own paths, below each of these prefixes."""

    def admitting(self, door: Middleware, endpoint: Endpoint, *, otherwise: Handler) -> Handler:
        """Make a handler that lets in who has signed in, and leaves the others to `otherwise`."""


class AdminPath(msgspec.Struct, frozen=True, kw_only=True):
    """A path of the admin API."""

    path: str
    api: str = ""
    """Its path in the API, of which `path` is the older name; empty where it has none."""
    answer: Endpoint
    methods: tuple[str, ...] = _READ
    is_open: bool = False
    """Whether everybody is answered, under any Host; otherwise operators alone are."""


class AdminApi(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to all paths of the admin API."""

    health: Health
    status: Callable[[], JsonObject]
    """The status of this process."""
    metrics: Callable[[str], Awaitable[tuple[bytes, str]]]
    """All metrics in text for Prometheus, and its media type, which suits an `Accept` field."""
    logs: Logs
    reload: Callable[[], Awaitable[JsonObject]]
    """Load the files again; says under `problems` what keeps them from being served."""
    config: Callable[[], Awaitable[JsonObject]]
    """What is served, and to whom, as it may be shown."""
    tasks: Tasks
    about: Callable[[str | None], JsonObject]
    """The answer of `/-/api/`, but for the caller; of the URL by which a caller reaches the main listener."""
    workers: Workers | None = None
    """None where the daemon is one process."""
    console: BrowserConsole | None = None
    """None where it is not served."""

    def application(self, door: Middleware, *, is_private: bool, prefixes: Iterable[str] = ("",)) -> web.Application:
        """A listener of their own. Whoever reaches it is an operator; on a private one, who holds the scope.

        What browsers use stands below each of the prefixes, under which proxies mount the daemon.
        """
        application = web.Application()
        self._mount(application.router, door, is_main=False, is_private=is_private, prefixes=prefixes)
        application.router.add_route("*", "/{path:.*}", door.checked(_not_found))
        return application

    def mount(self, router: web.UrlDispatcher, door: Middleware, *, prefixes: Iterable[str] = ("",)) -> None:
        """Stand on the main listener. Operators hold the scope; where nobody has to authenticate, they are local."""
        self._mount(router, door, is_main=True, is_private=True, prefixes=prefixes)

    def _mount(
        self, router: web.UrlDispatcher, door: Middleware, *, is_main: bool, is_private: bool, prefixes: Iterable[str]
    ) -> None:
        # Without `public_url` both prefixes are empty, and aiohttp refuses to add a route twice.
        prefixes = dict.fromkeys(prefixes)
        for own in self._paths(door if is_private else None, is_main=is_main):
            answer = _by_method(own)
            if own.is_open:
                handler = door.public(answer)
            elif is_private:
                handler = door.authenticated(_for_operators(answer, is_main=is_main), scopes=OPERATORS)
            else:
                handler = door.checked(_for_operators(answer, is_main=is_main))
            if own.path:
                router.add_route("*", own.path, handler)
            if own.api and self.console is not None:
                handler = self.console.admitting(door, answer, otherwise=handler)
            if own.api:
                for prefix in prefixes:
                    router.add_route("*", f"{prefix}/-/api{own.api}", handler)
        if self.console is not None:
            self.console.mount(router, door, prefixes=prefixes)

    def _paths(self, door: Middleware | None, *, is_main: bool) -> Iterator[AdminPath]:
        yield AdminPath(path="", api="/", answer=partial(self._about, is_main=is_main))
        yield AdminPath(path="/-/healthy", answer=self._healthy, is_open=True)
        yield AdminPath(path="/-/ready", answer=partial(self._ready, door=door), is_open=True)
        yield AdminPath(path="/-/status", api="/status", answer=self._status)
        yield AdminPath(path="/-/config", api="/manifest", answer=self._config)
        yield AdminPath(path="/metrics", answer=self._metrics)
        yield AdminPath(path="/-/tasks", api="/tasks", answer=self._tasks)
        yield AdminPath(path="/-/tasks/{id}", api="/tasks/{id}", answer=self._task)
        yield AdminPath(
            path="/-/tasks/{id}/cancel", api="/tasks/{id}/cancel", answer=self._cancel_task, methods=("POST",)
        )
        yield AdminPath(path="/-/log-level", api="/log-level", answer=self._log_level, methods=(*_READ, "POST"))
        yield AdminPath(path="/-/reload", api="/reload", answer=self._reload, methods=("POST",))

    async def _healthy(self, request: HttpRequest) -> web.Response:
        return json_response({"healthy": True}, request)

    async def _ready(self, request: HttpRequest, *, door: Middleware | None) -> web.Response:
        """Answer everybody whether the daemon is ready, and operators alone what is wrong: without `door` all are."""
        readiness = self.health.readiness()
        if self.workers is not None:
            readiness = await self.workers.readiness(readiness)
        status = 200 if readiness["ready"] else 503
        # Problems and warnings may quote the files: others learn only that there are some.
        if door is not None and not await _is_operator(door, request):
            readiness = {name: value for name, value in readiness.items() if name != "warnings"}
            if readiness["problems"]:
                readiness["problems"] = [_UNTOLD]
        return json_response(readiness, request, status=status)

    async def _about(self, request: HttpRequest, *, is_main: bool) -> web.Response:
        """Say what this is, and who asks."""
        identity = request.identity
        scopes = None if identity.scopes is None else sorted(identity.scopes)
        caller = {"principal": identity.principal, "scopes": scopes}
        found = self.about(request.client_endpoint.base_url if is_main else None)
        return json_response({**found, "caller": caller}, request)

    async def _status(self, request: HttpRequest) -> web.Response:
        status = self.status() if self.workers is None else await self.workers.status()
        return json_response(status, request)

    async def _config(self, request: HttpRequest) -> web.Response:
        return json_response(await self.config(), request)

    async def _metrics(self, request: HttpRequest) -> web.Response:
        text, media_type = await self.metrics(request.raw.headers.get("Accept", ""))
        headers = {"Content-Type": media_type, **_PAGE, **request.response_headers}
        return web.Response(body=text, headers=headers)

    async def _tasks(self, request: HttpRequest) -> web.Response:
        return json_response(await self.tasks.listed(), request)

    async def _task(self, request: HttpRequest) -> web.Response:
        return _found_or_not(await self.tasks.shown(request.raw.match_info["id"]), request)

    async def _cancel_task(self, request: HttpRequest) -> web.Response:
        return _found_or_not(await self.tasks.cancel(request.raw.match_info["id"]), request)

    async def _log_level(self, request: HttpRequest) -> web.Response:
        """Say the level; set it first where it is POSTed as `?level=debug`. It lasts until the process ends."""
        if request.raw.method == "POST":
            before, wanted = self.logs.level, request.raw.query.get("level", "")
            try:
                self.logs.set_level(wanted)
            except ValueError as error:
                return json_response({"error": f"level: {error}"}, request, status=400)
            if self.workers is not None:
                await self.workers.set_log_level(wanted)
            log.warning("log level changed", now=wanted, before=before)  # `level` is the line's own
        return json_response({"level": self.logs.level}, request)

    async def _reload(self, request: HttpRequest) -> web.Response:
        report = await self.reload()
        # RFC 9110 §15.5.21: the request was understood, and what the files say cannot be processed.
        return json_response(report, request, status=422 if report["problems"] else 200)


def _is_local(request: HttpRequest) -> bool:
    """Tell whether the request comes from this machine, and from no proxy on it, whose peers all look local."""
    raw = request.raw
    return (
        is_loopback_address(raw.remote or "")
        and is_loopback_host(raw.headers.get("Host"))
        and not any(name in raw.headers for name in FORWARDING_HEADERS)
    )


def json_response(value: JsonObject, request: HttpRequest, *, status: int = 200) -> web.Response:
    return request.answer(value, status=status, headers=_PAGE)


def _found_or_not(task: JsonObject | None, request: HttpRequest) -> web.Response:
    if task is None:
        return json_response({"error": "there is no such task"}, request, status=404)
    return json_response(task, request)


async def _not_found(request: HttpRequest) -> web.Response:
    error = "not found; this listener has the daemon's own paths alone"
    return json_response({"error": error}, request, status=404)


def _by_method(own: AdminPath) -> Endpoint:
    async def answer(request: HttpRequest) -> web.StreamResponse:
        if request.raw.method not in own.methods:
            response = json_response({"error": "method not allowed"}, request, status=405)
            response.headers["Allow"] = ", ".join(own.methods)
            return response
        return await own.answer(request)

    return answer


def _for_operators(endpoint: Endpoint, *, is_main: bool) -> Endpoint:
    """Make an endpoint that is not there for others: on the main listener, who is neither known nor local."""

    async def answer(request: HttpRequest) -> web.StreamResponse:
        is_known = request.identity.principal is not None  # and holds the scope, which the middleware has checked
        # CSRF: a page in a browser here comes from this machine as well, and pages of loopback origins pass the guard.
        is_of_a_page = request.raw.method not in _READ and "Origin" in request.raw.headers
        if not is_known and (is_of_a_page or (is_main and not _is_local(request))):
            error = "not found; the daemon's own paths are for callers on this machine"
            return json_response({"error": error}, request, status=404)
        return await endpoint(request)

    return answer


async def _is_operator(door: Middleware, request: HttpRequest) -> bool:
    """Tell whether a caller of a path that is open to everybody is an operator all the same."""
    return _is_local(request) if door.authenticator.is_open else await door.holds(request, OPERATORS)
