"""The daemon's own paths, which are none of MCP: is it alive and ready, what is it doing, load the files again.

They stand on the main listener or on one of their own. Probes learn nothing that needs guarding and are answered for
everybody; the rest is for operators alone, and for anybody else it is not there.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import structlog
from aiohttp import web

from gateway.json_types import JsonObject
from gateway.protocol import jsonrpc
from gateway.transports.accept import JSON
from gateway.transports.front_door import Endpoint, FrontDoor, Handler
from gateway.transports.guard import is_loopback_address, is_loopback_host
from gateway.transports.visit import Visit

OPERATORS: Final = frozenset({"gateway:admin"})
"""The scope that operators hold."""

log: Final = structlog.get_logger()

_READ: Final = ("GET", "HEAD")
_PAGE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""What a browser or a cache may not do with a page that says how things are just now. There is no HTML to protect."""
_UNTOLD: Final = "the files on disk cannot be served; /-/status says why, to operators"
_FORWARDED: Final = (
    *("forwarded", "via", "x-real-ip"),
    *(f"x-forwarded-{what}" for what in ("for", "host", "port", "prefix", "proto")),
)


class Health(Protocol):
    """What the daemon says about itself."""

    @property
    def is_ready(self) -> bool: ...
    def readiness(self) -> JsonObject: ...
    def status(self) -> JsonObject: ...


class Metrics(Protocol):
    """What the daemon measures."""

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """A text of it for Prometheus, and its media type, which suits the `Accept` field."""


class Logs(Protocol):
    """What the daemon writes down."""

    @property
    def level(self) -> str: ...
    def set_level(self, level: str) -> None:
        """Raises: ValueError: there is no such level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPath:
    """One of them."""

    path: str
    answer: Endpoint
    methods: tuple[str, ...] = _READ
    is_open: bool = False
    """Whether everybody is answered, under any Host; otherwise operators alone are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPaths:
    """All of them."""

    health: Health
    metrics: Metrics
    logs: Logs
    reload: Callable[[], Awaitable[JsonObject]]
    """Load the files again; says under `problems` what keeps them from being served."""
    config: Callable[[], Awaitable[JsonObject]]
    """What is served, and to whom, as it may be shown."""

    def application(self, door: FrontDoor, *, is_private: bool) -> web.Application:
        """A listener of their own. Whoever reaches it is an operator; on a private one, who holds the scope."""
        application = web.Application()
        admit = partial(door.private, scopes=OPERATORS) if is_private else door.guarded
        self._mount(
            application.router,
            door,
            admit=lambda endpoint: admit(_for_operators(endpoint, lambda _visit: True)),
            is_told=lambda visit: not is_private or _is_local_and_nobody_must_say_who(door, visit),
        )
        application.router.add_route("*", "/{path:.*}", door.guarded(_not_found))
        return application

    def mount(self, router: web.UrlDispatcher, door: FrontDoor) -> None:
        """Stand on the main listener. Operators hold the scope; where nobody has to authenticate, they are local."""
        self._mount(
            router,
            door,
            admit=lambda endpoint: door.private(
                _for_operators(endpoint, lambda visit: _is_known(visit) or _is_local(visit)), scopes=OPERATORS
            ),
            is_told=lambda visit: _is_local_and_nobody_must_say_who(door, visit),
        )

    def _mount(
        self,
        router: web.UrlDispatcher,
        door: FrontDoor,
        *,
        admit: Callable[[Endpoint], Handler],
        is_told: Callable[[Visit], bool],
    ) -> None:
        for own in self._paths(is_told):
            answer = _by_method(own)
            router.add_route("*", own.path, door.open(answer) if own.is_open else admit(answer))

    def _paths(self, is_told: Callable[[Visit], bool]) -> Iterator[OwnPath]:
        yield OwnPath(path="/-/healthy", answer=self._healthy, is_open=True)
        yield OwnPath(path="/-/ready", answer=partial(self._ready, is_told=is_told), is_open=True)
        yield OwnPath(path="/-/status", answer=self._status)
        yield OwnPath(path="/-/config", answer=self._config)
        yield OwnPath(path="/metrics", answer=self._metrics)
        yield OwnPath(path="/-/log-level", answer=self._log_level, methods=(*_READ, "POST"))
        yield OwnPath(path="/-/reload", answer=self._reload, methods=("POST",))

    async def _healthy(self, visit: Visit) -> web.Response:
        return json_response({"healthy": True}, headers=visit.headers)

    async def _ready(self, visit: Visit, *, is_told: Callable[[Visit], bool]) -> web.Response:
        """Say it to everybody; what is wrong with which file of the daemon's, to operators alone."""
        status = 200 if self.health.is_ready else 503
        readiness = self.health.readiness()
        if readiness["problems"] and not is_told(visit):
            readiness = {**readiness, "problems": [_UNTOLD]}
        return json_response(readiness, status=status, headers=visit.headers)

    async def _status(self, visit: Visit) -> web.Response:
        return json_response(self.health.status(), headers=visit.headers)

    async def _config(self, visit: Visit) -> web.Response:
        return json_response(await self.config(), headers=visit.headers)

    async def _metrics(self, visit: Visit) -> web.Response:
        text, media_type = await self.metrics.exposition(visit.request.headers.get("Accept", ""))
        headers = {"Content-Type": media_type, **_PAGE, **visit.headers}
        return web.Response(body=text, headers=headers)

    async def _log_level(self, visit: Visit) -> web.Response:
        """Say the level; set it first where it is POSTed as `?level=debug`. It lasts until the process ends."""
        if visit.request.method == "POST":
            before, wanted = self.logs.level, visit.request.query.get("level", "")
            try:
                self.logs.set_level(wanted)
            except ValueError as error:
                return json_response({"error": f"level: {error}"}, status=400, headers=visit.headers)
            log.warning("log level changed", now=wanted, before=before)  # `level` is the line's own
        return json_response({"level": self.logs.level}, headers=visit.headers)

    async def _reload(self, visit: Visit) -> web.Response:
        report = await self.reload()
        return json_response(report, status=422 if report["problems"] else 200, headers=visit.headers)


def _is_known(visit: Visit) -> bool:
    """Whether the caller said who it is; the front door saw to the scope."""
    return visit.identity.principal is not None


def _is_local(visit: Visit) -> bool:
    """Whether this machine asks. Behind a proxy every peer's address is loopback, hence the other two conditions."""
    request = visit.request
    return (
        is_loopback_address(request.remote or "")
        and is_loopback_host(request.headers.get("Host"))
        and not any(name in request.headers for name in _FORWARDED)
    )


def json_response(value: JsonObject, *, status: int = 200, headers: Mapping[str, str]) -> web.Response:
    return web.Response(body=jsonrpc.encode(value), status=status, headers={"Content-Type": JSON, **_PAGE, **headers})


async def _not_found(visit: Visit) -> web.Response:
    error = "not found; this listener has the daemon's own paths alone"
    return json_response({"error": error}, status=404, headers=visit.headers)


def _by_method(own: OwnPath) -> Endpoint:
    async def answer(visit: Visit) -> web.StreamResponse:
        if visit.request.method not in own.methods:
            allowed = {"Allow": ", ".join(own.methods), **visit.headers}
            return json_response({"error": "method not allowed"}, status=405, headers=allowed)
        return await own.answer(visit)

    return answer


def _for_operators(endpoint: Endpoint, is_operator: Callable[[Visit], bool]) -> Endpoint:
    async def answer(visit: Visit) -> web.StreamResponse:
        if not is_operator(visit) or (not _is_known(visit) and _is_of_a_page(visit.request)):
            error = "not found; the daemon's own paths are for callers on this machine"
            return json_response({"error": error}, status=404, headers=visit.headers)
        return await endpoint(visit)

    return answer


def _is_local_and_nobody_must_say_who(door: FrontDoor, visit: Visit) -> bool:
    return door.authenticator.is_open and _is_local(visit)


def _is_of_a_page(request: web.Request) -> bool:
    """Whether a page in a browser wants to change something, which it has no business with."""
    return request.method not in _READ and "Origin" in request.headers
