"""Takes over sockets from the service manager (socket activation, see sd_listen_fds(3)).

The sockets outlive the process, so connections are queued during a restart instead of being refused.
"""

import os
import socket
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Final

from gateway.config.models.address import Address
from gateway.errors import ConfigError, Problem

FIRST_DESCRIPTOR: Final = 3
ADMIN: Final = "admin"
"""The name (`FileDescriptorName=`) of sockets for `listen.admin`. All other sockets are for `listen.http`."""

_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")

Inherited = Mapping[str, tuple[socket.socket, ...]]
"""The sockets of each listener. The keys are `ADMIN` and, for `listen.http`, an empty string."""


def take_inherited(environ: MutableMapping[str, str] = os.environ) -> Inherited:
    """Take the inherited sockets, and hide the environment variables of the sockets from child processes.

    1. `LISTEN_PID` is this process. Otherwise return no sockets.
    2. Each descriptor is a listening stream socket.

    Raises:
        ConfigError: A descriptor is not a listening stream socket.
    """
    process, count, names = (environ.pop(name, "") for name in _VARIABLES)
    # `isdigit` accepts `²`, which `int` rejects.
    if process != str(os.getpid()) or not count.isascii() or not count.isdigit():
        return {}
    by_listener: dict[str, tuple[socket.socket, ...]] = {}
    called = names.split(":")
    for index in range(int(count)):
        # There can be fewer names than descriptors.
        listener = ADMIN if called[index : index + 1] == [ADMIN] else ""
        by_listener[listener] = (*by_listener.get(listener, ()), _listening(FIRST_DESCRIPTOR + index))
    return by_listener


def address_of(sockets: tuple[socket.socket, ...]) -> Address:
    """Return the address that most clients can reach: a wildcard address first, a loopback address last."""
    return max((_address(each) for each in sockets), key=lambda address: (not address.is_loopback, address.is_wildcard))


def unix_paths(sockets: Iterable[socket.socket]) -> list[str]:
    """Return the paths of Unix sockets. Abstract names start with `@`, as in ss(8)."""
    names = (os.fsdecode(each.getsockname()) for each in sockets if each.family is socket.AF_UNIX)
    return [name.replace("\0", "@") for name in names]


def _listening(descriptor: int) -> socket.socket:
    try:
        taken = socket.socket(fileno=descriptor)
        # A child process that inherits the socket would keep the port in use.
        taken.set_inheritable(False)
    except OSError as error:
        raise _unusable(f"descriptor {descriptor} was announced but is not a socket: {error.strerror}") from error
    if taken.type is not socket.SOCK_STREAM or not taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        # Detach the descriptor, because the object would close a descriptor that belongs to other code.
        taken.detach()
        raise _unusable(f"descriptor {descriptor} is not a listening stream socket (ListenStream=, Accept=no)")
    return taken


def _unusable(why: str) -> ConfigError:
    return ConfigError([Problem(message=why, path="LISTEN_FDS")])


def _address(listening: socket.socket) -> Address:
    if listening.family is socket.AF_UNIX:
        return Address("localhost", 0)  # Access depends on the file's mode.
    host, port = listening.getsockname()[:2]
    return Address(host, port)
