"""Resources that the supervisor creates for all workers: listening sockets, a directory, signing keys."""

import asyncio
import fcntl
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import structlog

from gateway.config.models.address import Address
from gateway.config.models.server import Listen
from gateway.config.settings import Settings, flag_of
from gateway.errors import ConfigError, Problem
from gateway.executors.shell.scratch import remove_leftovers
from gateway.state.keys import SigningKeys, own_keys
from gateway.state.state import StateDirectory, directory_of
from gateway.transports.listener.http_listener import reason_of
from gateway.transports.listener.socket_activation import ADMIN, Inherited

log: Final = structlog.get_logger(__name__)

_PREFIX: Final = "mcp-gateway-workers-"
_UNLOCKED: Final = "mcp-gateway-new-"
_LOCKED: Final = re.compile(rf"{_PREFIX}\w{{8}}")


async def bound_sockets(settings: Settings, listen: Listen) -> Inherited:
    """Bind the addresses of the listeners.

    Raises:
        ConfigError: an address cannot be bound.
    """
    main = Address.parse(listen.http) if settings.http is None else settings.http
    source = "listen.http" if settings.http is None else flag_of("http")
    sockets = {"": await _bound(main, source)}
    if listen.admin is not None:
        sockets[ADMIN] = await _bound(Address.parse(listen.admin), "listen.admin")
    return sockets


async def _bound(address: Address, source: str) -> tuple[socket.socket, ...]:
    try:
        # The event loop binds every address of a host name, with the same options as for a single process.
        server = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, address.host, address.port, start_serving=False
        )
    except OSError as error:
        raise ConfigError([Problem(message=reason_of(error, address), path=source)]) from error
    try:
        # Copies: `close` closes the server's descriptors.
        return tuple(socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets)
    finally:
        server.close()


@contextmanager
def private_directory() -> Iterator[Path]:
    """Create a directory of mode 0700 for the workers' Unix sockets, and remove it at the end.

    A lock (flock(2)) marks the directory as used. Directories that killed supervisors have left are removed.
    """
    if left := remove_leftovers(_LOCKED):
        log.info("removed what a killed supervisor had left", directories=left)
    path = Path(tempfile.mkdtemp(prefix=_UNLOCKED))
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without locks: the directory stays after a crash
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Renamed once locked: an unlocked directory with the final name would be removed.
            path = path.rename(path.with_name(path.name.replace(_UNLOCKED, _PREFIX)))
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


@contextmanager
def shared_keys(settings: Settings) -> Iterator[SigningKeys | None]:
    """Lock the state directory for the context, and return its signing keys; None if the settings have keys.

    Raises:
        ConfigError: the keys of the settings cannot be read.
    """
    if settings.signing_keys():
        yield None
        return
    # Each worker locks a subdirectory.
    with StateDirectory(directory_of(settings.state_dir, config=settings.config, environ=os.environ)) as directory:
        if directory.problem:
            log.warning("signing keys not written; they are kept in memory", reason=directory.problem)
        yield own_keys(directory.path)
