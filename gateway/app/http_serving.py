"""The daemon's HTTP server with its admin API, and the addresses that it listens on.

Imported where HTTP is served: a daemon on standard input and output alone starts without a server and its libraries.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from gateway.app.components import Components
from gateway.app.monitoring.daemon_info import daemon_info
from gateway.app.monitoring.metrics import DaemonMetrics
from gateway.app.monitoring.tasks import TaskReport
from gateway.config.models.address import Address
from gateway.config.settings import Settings, flag_of
from gateway.errors import ConfigError, Problem
from gateway.json_types import JsonObject
from gateway.reload.candidate import Candidate
from gateway.reload.exposure import exposed
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.transports.http.admin_api import AdminApi
from gateway.transports.http_server import HttpServer, ListenAddress, ServerLimits
from gateway.transports.listener.socket_activation import ADMIN, Inherited, address_of
from gateway.transports.streamable_http.sessions import SessionPersistence

if TYPE_CHECKING:
    from gateway.app.console_setup import ConsoleSetup
    from gateway.app.workers.all_workers import AllWorkers

log: Final = structlog.get_logger()

_INHERITED: Final = "LISTEN_FDS"


def http_server(  # noqa: PLR0913 - the parts that a daemon brings
    components: Components,
    *,
    health: Health,
    metrics: DaemonMetrics,
    logs: Logs,
    reload: Callable[[], Awaitable[JsonObject]],
    config: Callable[[], Awaitable[JsonObject]],
    workers: "AllWorkers | None",
    console_setup: "ConsoleSetup | None",
) -> HttpServer:
    """Make the server, which does not listen yet. The sections `listen` and `limits` of now hold until the end."""
    document, state = components.pipeline.served.document, components.state
    console = None
    if console_setup is not None:
        console = console_setup.console(components, health=health, logs=logs, workers=workers)

    def mask(text: str) -> str:
        return components.pipeline.redactor.text(text)

    return HttpServer(
        document.listen,
        ServerLimits.of(document.listen, document.limits),
        dispatcher=components.dispatcher,
        authenticator=components.authenticator,
        admin_api=AdminApi(
            health=health,
            metrics=(workers or metrics).exposition,
            logs=logs,
            reload=reload if workers is None else partial(workers.reload, reload),
            config=config,
            tasks=TaskReport(
                components.dispatcher.tasks.runner,
                mask=mask,
                progress=None if console_setup is None else console_setup.task_progress.shown,
            ),
            about=partial(daemon_info, components, has_console=console_setup is not None),
            workers=workers,
            console=console,
        ),
        tls=components.pipeline.tls,
        is_draining=lambda: health.is_stopping,
        mask=mask,
        persistence=SessionPersistence(keys=state.keys, store=state.sessions, clock=state.clock, replica=state.replica),
    )


async def open_http(
    server: HttpServer, stack: AsyncExitStack, *, settings: Settings, served: Candidate, inherited: Inherited
) -> None:
    """Begin to listen, until the stack closes.

    Raises:
        ConfigError: an address cannot be listened on, or must not be without authentication.
    """
    main, admin = _main_address(settings, served, inherited), _admin_address(served, inherited)
    # Both are checked before either is open.
    for where in filter(None, (admin, main)):
        _require_auth_or_loopback(where, settings, served)
    await server.open(stack, main, admin=admin)


def _main_address(settings: Settings, served: Candidate, inherited: Inherited) -> ListenAddress:
    # First of all: whoever handed sockets over has decided where to listen.
    if sockets := inherited.get("", ()):
        return ListenAddress(source=_INHERITED, address=address_of(sockets), sockets=sockets)
    if settings.http is not None:
        return ListenAddress(source=flag_of("http"), address=settings.http)
    return ListenAddress(source="listen.http", address=Address.parse(served.document.listen.http))


def _admin_address(served: Candidate, inherited: Inherited) -> ListenAddress | None:
    if sockets := inherited.get(ADMIN, ()):
        return ListenAddress(source=_INHERITED, address=address_of(sockets), sockets=sockets)
    admin = served.document.listen.admin
    return None if admin is None else ListenAddress(source="listen.admin", address=Address.parse(admin))


def _require_auth_or_loopback(where: ListenAddress, settings: Settings, served: Candidate) -> None:
    """Refuse an address beyond loopback: without authentication, everybody who reaches it may run the tools."""
    if served.document.auth is not None or where.address.is_loopback:
        return
    if not settings.allow_anonymous:
        problem = served.exposures.get(where.source)
        raise ConfigError([problem or Problem(message=exposed(where.address), path=where.source)])
    log.warning("anybody who reaches this address is served", address=str(where.address))
