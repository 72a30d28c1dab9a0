import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import AsyncExitStack
from typing import Final

import structlog

from gateway.app.parts import App
from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.models.address import Address
from gateway.config.models.server import Listen
from gateway.config.settings import Settings, flag_of
from gateway.errors import ConfigError, Problem
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.reload.candidate import Candidate
from gateway.reload.exposure import exposed
from gateway.telemetry.health import Health
from gateway.transports.http_server import HttpServer
from gateway.transports.listener.http_listener import ListenAddress
from gateway.transports.listener.socket_activation import ADMIN, Inherited, address_of
from gateway.transports.stdio.stdio import Stdio

log: Final = structlog.get_logger(__name__)

_INHERITED: Final = "LISTEN_FDS"
_NOTICE_FRACTION: Final = 0.25
"""The fraction of the drain time during which connections are still accepted, so that load balancers can react."""
_MAX_NOTICE_SECONDS: Final = 10.0
_HANDOVER_SECONDS: Final = 1.0
"""How many seconds open connections can still be used after another process has taken over the sockets."""


def check_view(name: str | None, views: Collection[str]) -> None:
    """Raise ConfigError if the view does not exist."""
    if name is not None and name not in views:
        message = f"unknown view `{name}`{did_you_mean(name, [*views])}"
        raise ConfigError([Problem(message=message, path=flag_of("view"))])


def open_sessions(http: HttpServer | None, stdio: Stdio | None) -> Iterator[tuple[Binding, Session]]:
    if http is not None:
        yield from http.open_sessions()
    if stdio is not None:
        yield from ((Binding.STDIO, session) for session in stdio.open_sessions)


def is_exposed(settings: Settings, inherited: Inherited, listen: Listen) -> bool:
    """Return whether other machines can reach the daemon, directly or through a proxy."""
    if not settings.serves_http:
        return False
    addresses = filter(None, (_main_address(settings, listen, inherited), _admin_address(listen, inherited)))
    return listen.public_url is not None or any(not each.address.is_loopback for each in addresses)


async def open_listeners(
    app: App, stack: AsyncExitStack, *, inherited: Inherited, on_input_end: Callable[[], None]
) -> None:
    """Open listeners that close with `stack`. Raise ConfigError if an address cannot be used."""
    if app.http is not None:
        await _open_http(app, app.http, stack, inherited)
    if app.stdio is not None:
        check_view(app.core.settings.view, app.core.pipeline.served.document.views)
        _open_stdio(app.stdio, stack, on_input_end)


async def drain(app: App, seconds: float, *, leaves_sockets: bool) -> None:
    """Refuse new sessions and streams, and wait for calls in flight for at most `seconds`."""
    notice = 0.0
    if app.http is not None:
        notice = await _stop_accepting(app.http, app.core.health, seconds, leaves_sockets=leaves_sockets)
    # Close streams now, because they would last as long as their clients, and clients can reconnect elsewhere.
    app.core.dispatcher.notifier.close()
    async with asyncio.TaskGroup() as group:
        if app.http is not None:
            group.create_task(app.http.drain(seconds - notice))
        if app.stdio is not None:
            group.create_task(app.stdio.drain(seconds - notice))


async def _stop_accepting(http: HttpServer, health: Health, seconds: float, *, leaves_sockets: bool) -> float:
    http.begin_draining()
    # Give load balancers that poll `/-/ready` time to react.
    has_notice = http.address is not None and not leaves_sockets and health.is_watched
    notice = min(seconds * _NOTICE_FRACTION, _MAX_NOTICE_SECONDS) if has_notice else 0.0
    await asyncio.sleep(notice)
    http.stop_accepting()
    if leaves_sockets:
        # Otherwise, requests that are already on their way would be lost (RFC 9112 §9.5).
        notice = min(seconds, _HANDOVER_SECONDS)
        await asyncio.sleep(notice)
    return notice


async def _open_http(app: App, http: HttpServer, stack: AsyncExitStack, inherited: Inherited) -> None:
    settings, served = app.core.settings, app.core.pipeline.served
    main = _main_address(settings, served.document.listen, inherited)
    admin = _admin_address(served.document.listen, inherited)
    for where in filter(None, (admin, main)):
        _require_auth_or_loopback(where, settings, served)
    await http.open(stack, main, admin_api=app.admin_api, admin=admin)


def _require_auth_or_loopback(where: ListenAddress, settings: Settings, served: Candidate) -> None:
    if served.document.auth is not None or where.address.is_loopback:
        return
    if not settings.allow_anonymous:
        problem = served.exposures.get(where.source)
        raise ConfigError([problem or Problem(message=exposed(where.address), path=where.source)])
    log.warning("serving without authentication", address=str(where.address))


def _open_stdio(stdio: Stdio, stack: AsyncExitStack, on_input_end: Callable[[], None]) -> None:
    async def serve() -> None:
        try:
            await stdio.serve()
        except Exception:  # Boundary: no one reads the result of this task
            log.exception("stdio failed")
        finally:
            on_input_end()

    async def close() -> None:
        await stdio.close()
        await asyncio.wait([task])

    task = asyncio.get_running_loop().create_task(serve(), name="stdio")
    stack.push_async_callback(close)
    log.info("serving on standard input and output")


def _main_address(settings: Settings, listen: Listen, inherited: Inherited) -> ListenAddress:
    if sockets := inherited.get("", ()):
        return ListenAddress(source=_INHERITED, address=address_of(sockets), sockets=sockets)
    if settings.http is not None:
        return ListenAddress(source=flag_of("http"), address=settings.http)
    return ListenAddress(source="listen.http", address=Address.parse(listen.http))


def _admin_address(listen: Listen, inherited: Inherited) -> ListenAddress | None:
    if sockets := inherited.get(ADMIN, ()):
        return ListenAddress(source=_INHERITED, address=address_of(sockets), sockets=sockets)
    return None if listen.admin is None else ListenAddress(source="listen.admin", address=Address.parse(listen.admin))
