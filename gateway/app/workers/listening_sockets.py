"""The sockets that all workers accept from: bound by their supervisor, or handed over by the service manager."""

import asyncio
import os
import socket
from typing import Final

from gateway.config.models.address import Address
from gateway.config.models.server import Listen
from gateway.config.settings import Settings, flag_of
from gateway.errors import ConfigError, Problem
from gateway.transports.listener.http_listener import reason_of
from gateway.transports.listener.socket_activation import ADMIN, Inherited

MAIN: Final = ""


async def bound_sockets(settings: Settings, listen: Listen) -> Inherited:
    """Bind the addresses of the listeners; workers listen on them.

    Raises:
        ConfigError: an address cannot be had.
    """
    main = Address.parse(listen.http) if settings.http is None else settings.http
    source = "listen.http" if settings.http is None else flag_of("http")
    sockets = {MAIN: await _bound(main, source)}
    if listen.admin is not None:
        sockets[ADMIN] = await _bound(Address.parse(listen.admin), "listen.admin")
    return sockets


async def _bound(address: Address, source: str) -> tuple[socket.socket, ...]:
    try:
        # The event loop binds as it does for a single process: every address of a name, options and all.
        server = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, address.host, address.port, start_serving=False
        )
    except OSError as error:
        raise ConfigError([Problem(message=reason_of(error, address), path=source)]) from error
    try:
        # Copies: closing the server closes its own descriptors.
        return tuple(socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets)
    finally:
        server.close()
