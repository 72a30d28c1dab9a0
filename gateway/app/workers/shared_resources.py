"""The resources of all workers, from their supervisor: the sockets that they accept from, a directory, signing keys."""

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
from gateway.config.settings import Settings, flag_of, variable_of
from gateway.errors import ConfigError, Problem
from gateway.executors.shell.scratch import remove_leftovers
from gateway.state.keys import SigningKeys, own_keys, warn_of_unshared
from gateway.state.state import StateDirectory, directory_of
from gateway.transports.listener.http_listener import reason_of
from gateway.transports.listener.socket_activation import ADMIN, Inherited

log: Final = structlog.get_logger()

_PREFIX: Final = "mcp-gateway-workers-"
_UNLOCKED: Final = "mcp-gateway-new-"
_LOCKED: Final = re.compile(rf"{_PREFIX}\w{{8}}")


async def bound_sockets(settings: Settings, listen: Listen) -> Inherited:
    """Bind the addresses of the listeners; workers listen on them.

    Raises:
        ConfigError: an address cannot be had.
    """
    main = Address.parse(listen.http) if settings.http is None else settings.http
    source = "listen.http" if settings.http is None else flag_of("http")
    sockets = {"": await _bound(main, source)}
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


@contextmanager
def private_directory() -> Iterator[Path]:
    """Make a directory for the workers' sockets for each other, of mode 0700, for as long as the context lasts.

    It is locked (flock(2)) while its supervisor lives: what a killed one has left, the next supervisor removes.
    """
    if left := remove_leftovers(_LOCKED):
        log.info("removed what a killed supervisor had left", directories=left)
    path = Path(tempfile.mkdtemp(prefix=_UNLOCKED))
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without locks: nobody removes it after a crash
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # It gets its name once it is locked: until then nobody takes it for left.
            path = path.rename(path.with_name(path.name.replace(_UNLOCKED, _PREFIX)))
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


@contextmanager
def shared_keys(settings: Settings) -> Iterator[SigningKeys | None]:
    """Have the keys of the state directory, locked for the context; None where the settings have keys, for each worker.

    The state directory is for one process at a time, and so for the supervisor.

    Raises:
        ConfigError: those of the settings cannot be read.
    """
    if settings.signing_keys():
        yield None
        return
    # The workers' own directories lie below this one, and are locked by each of them.
    with StateDirectory(directory_of(settings.state_dir, config=settings.config, environ=os.environ)) as directory:
        if directory.problem:
            log.warning("signing keys not written; they are kept in memory", reason=directory.problem)
        warn_of_unshared(variable=variable_of("secret_key"))
        yield own_keys(directory.path)
