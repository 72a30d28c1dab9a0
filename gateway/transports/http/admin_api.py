"""The admin API: health, readiness, status, metrics, log level and reload.

Probes are open to everyone. All other paths are only available to operators.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Final, Protocol

import msgspec
import structlog
from aiohttp import web

from gateway.access.identity import OPERATORS
from gateway.json_types import JsonObject
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.transports.http.host_and_origin import is_loopback_host
from gateway.transports.http.middleware import Handler, Middleware
from gateway.transports.http.request import Endpoint, HttpRequest

log: Final = structlog.get_logger(__name__)

_READ: Final = ("GET", "HEAD")
_PAGE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_HIDDEN_PROBLEMS: Final = "there are problems. Operators can see them at /-/status"


class Tasks(Protocol):
    """Lists, shows and cancels running tasks without exposing their arguments and results."""

    async def listed(self) -> JsonObject: ...
    async def shown(self, task_id: str) -> JsonObject | None: ...

    async def cancel(self, task_id: str) -> JsonObject | None:
        """Cancel a task and return the task, or return None if the task does not exist."""


class Workers(Protocol):
    """All worker processes, including this one."""

    async def status(self) -> JsonObject: ...
    async def readiness(self, own: JsonObject) -> JsonObject: ...
    async def set_log_level(self, level: str) -> None: ...


class BrowserConsole(Protocol):
    """The web console. Signed-in users of the console can also call the admin API below `/-/api`."""

    def mount(self, router: web.UrlDispatcher, middleware: Middleware, *, prefixes: Iterable[str]) -> None: ...

    def admitting(self, middleware: Middleware, endpoint: Endpoint, *, otherwise: Handler) -> Handler:
        """Return a handler that uses `endpoint` for signed-in users and `otherwise` for all other callers."""


class BrowserPages(Protocol):
    """Web pages that authenticate their users themselves."""

    def mount(
        self, router: web.UrlDispatcher, middleware: Middleware, *, prefixes: Iterable[str], is_main: bool = True
    ) -> None: ...

    def listen_at(self, base_url: str) -> None: ...


class AdminPath(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    api: str = ""
    """The path below `/-/api`, or an empty string. `path` is the older path of the same endpoint."""
    answer: Endpoint
    methods: tuple[str, ...] = _READ
    is_open: bool = False
    """Whether anyone can call the path, with any `Host` header."""


class AdminApi(msgspec.Struct, frozen=True, kw_only=True):
    health: Health
    status: Callable[[], JsonObject]
    metrics: Callable[[str], Awaitable[tuple[bytes, str]]]
    """Returns the metrics and their media type. The argument is the `Accept` header, which selects the text format."""
    logs: Logs
    reload: Callable[[], Awaitable[JsonObject]]
    """Reloads the configuration files. The result lists the `problems` that prevented the reload."""
    config: Callable[[], Awaitable[JsonObject]]
    tasks: Tasks
    about: Callable[[str | None], JsonObject]
    """Returns the body of `/-/api/` without the member `caller`. The argument is the main listener's base URL."""
    workers: Workers | None = None
    console: BrowserConsole | None = None

    def mount(
        self,
        router: web.UrlDispatcher,
        middleware: Middleware,
        *,
        is_main: bool,
        is_private: bool,
        prefixes: Iterable[str],
    ) -> None:
        """Add the paths to the main listener (`is_main`) or to a separate one.

        If `is_private`, callers need the operator scope. Without authentication, the main listener accepts only local
        callers. `prefixes` are the path prefixes under which reverse proxies publish the gateway.
        """
        # aiohttp rejects duplicate routes, and both prefixes are empty without `public_url`.
        prefixes = dict.fromkeys(prefixes)
        for route in self._paths(middleware if is_private else None, is_main=is_main):
            answer = _by_method(route)
            if route.is_open:
                handler = middleware.public(answer)
            elif is_private:
                handler = middleware.authenticated(_for_operators(answer, is_main=is_main), scopes=OPERATORS)
            else:
                handler = middleware.checked(_for_operators(answer, is_main=is_main))
            if route.path:
                router.add_route("*", route.path, handler)
            if route.api and self.console is not None:
                handler = self.console.admitting(middleware, answer, otherwise=handler)
            if route.api:
                for prefix in prefixes:
                    router.add_route("*", f"{prefix}/-/api{route.api}", handler)
        if self.console is not None:
            self.console.mount(router, middleware, prefixes=prefixes)

    def _paths(self, middleware: Middleware | None, *, is_main: bool) -> Iterator[AdminPath]:
        yield AdminPath(path="", api="/", answer=partial(self._about, is_main=is_main))
        yield AdminPath(path="/-/healthy", answer=self._healthy, is_open=True)
        yield AdminPath(path="/-/ready", answer=partial(self._ready, middleware=middleware), is_open=True)
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

    async def _ready(self, request: HttpRequest, *, middleware: Middleware | None) -> web.Response:
        readiness = self.health.readiness()
        if self.workers is not None:
            readiness = await self.workers.readiness(readiness)
        status = 200 if readiness["ready"] else 503
        # Problems and warnings can quote the configuration files.
        if middleware is not None and not await _is_operator(middleware, request):
            readiness = {name: value for name, value in readiness.items() if name != "warnings"}
            if readiness["problems"]:
                readiness["problems"] = [_HIDDEN_PROBLEMS]
        return json_response(readiness, request, status=status)

    async def _about(self, request: HttpRequest, *, is_main: bool) -> web.Response:
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
        return _task_response(await self.tasks.shown(request.raw.match_info["id"]), request)

    async def _cancel_task(self, request: HttpRequest) -> web.Response:
        return _task_response(await self.tasks.cancel(request.raw.match_info["id"]), request)

    async def _log_level(self, request: HttpRequest) -> web.Response:
        if request.raw.method == "POST":
            before, wanted = self.logs.level, request.raw.query.get("level", "")
            try:
                self.logs.set_level(wanted)
            except ValueError as error:
                return json_response({"error": f"level: {error}"}, request, status=400)
            if self.workers is not None:
                await self.workers.set_log_level(wanted)
            log.warning("log level changed", now=wanted, before=before)
        packages = {"packages": self.logs.package_levels} if self.logs.package_levels else {}
        return json_response({"level": self.logs.level, **packages}, request)

    async def _reload(self, request: HttpRequest) -> web.Response:
        report = await self.reload()
        # RFC 9110 §15.5.21: the request is valid, but the files cannot be loaded.
        return json_response(report, request, status=422 if report["problems"] else 200)


def is_local(request: HttpRequest) -> bool:
    """Return whether the request comes from this machine and not through a local proxy."""
    return request.caller.is_local and is_loopback_host(request.raw.headers.get("Host"))


def json_response(value: JsonObject, request: HttpRequest, *, status: int = 200) -> web.Response:
    return request.answer(value, status=status, headers=_PAGE)


def _task_response(task: JsonObject | None, request: HttpRequest) -> web.Response:
    if task is None:
        return json_response({"error": "unknown task"}, request, status=404)
    return json_response(task, request)


async def only_admin(request: HttpRequest) -> web.Response:
    error = "not found; this address serves only the admin API"
    return json_response({"error": error}, request, status=404)


def _by_method(route: AdminPath) -> Endpoint:
    async def answer(request: HttpRequest) -> web.StreamResponse:
        if request.raw.method not in route.methods:
            response = json_response({"error": "method not allowed"}, request, status=405)
            response.headers["Allow"] = ", ".join(route.methods)
            return response
        return await route.answer(request)

    return answer


def _for_operators(endpoint: Endpoint, *, is_main: bool) -> Endpoint:

    async def answer(request: HttpRequest) -> web.StreamResponse:
        is_known = request.identity.principal is not None
        # CSRF: web pages in a local browser can also send requests from this machine.
        is_of_a_page = request.raw.method not in _READ and "Origin" in request.raw.headers
        if not is_known and (is_of_a_page or (is_main and not is_local(request))):
            error = "not found; the admin API is only available to callers on this machine"
            return json_response({"error": error}, request, status=404)
        return await endpoint(request)

    return answer


async def _is_operator(middleware: Middleware, request: HttpRequest) -> bool:
    return is_local(request) if middleware.authenticator.is_open else await middleware.holds(request, OPERATORS)
