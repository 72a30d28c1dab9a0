"""Takes sockets that the service manager opened for this process: socket activation, as of sd_listen_fds(3).

Why: such a socket outlives the process. Connections that arrive while one daemon stops and the next one starts wait in
its queue, and none is refused.
"""

import os
import socket
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Final

from gateway.config.models.address import Address

FIRST_DESCRIPTOR: Final = 3
ADMIN: Final = "admin"
"""The name (`FileDescriptorName=`) of those that are for `listen.admin`; all others are for `listen.http`."""

_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")

Inherited = Mapping[str, tuple[socket.socket, ...]]
"""By the listener that they are for: `ADMIN`, or the empty name."""


class InheritedError(Exception):
    """A descriptor that was handed over cannot be listened on; the text says why."""


def take_inherited(environ: MutableMapping[str, str]) -> Inherited:
    """Take what is ours, and take the variables out of the environment: no child is to take them for its own.

    1. `LISTEN_PID` names this process: otherwise there is nothing
    2. each descriptor is a listening stream socket

    Raises:
        InheritedError: one is not.
    """
    process, count, names = (environ.pop(name, "") for name in _VARIABLES)
    # `isdigit` alone would take `²`, which `int` does not.
    if process != str(os.getpid()) or not count.isascii() or not count.isdigit():
        return {}
    by_listener: dict[str, tuple[socket.socket, ...]] = {}
    called = names.split(":")
    for index in range(int(count)):
        # Names may be fewer than descriptors, or not given at all.
        listener = ADMIN if called[index : index + 1] == [ADMIN] else ""
        by_listener[listener] = (*by_listener.get(listener, ()), _listening(FIRST_DESCRIPTOR + index))
    return by_listener


def address_of(sockets: tuple[socket.socket, ...]) -> Address:
    """Return the address of the sockets: of several, the one that most clients can reach."""
    return max((_address(each) for each in sockets), key=lambda address: (not address.is_loopback, address.is_wildcard))


def unix_paths(sockets: Iterable[socket.socket]) -> list[str]:
    """Return the paths of Unix sockets; the name of an abstract one begins with `@`, as ss(8) shows it."""
    names = (os.fsdecode(each.getsockname()) for each in sockets if each.family is socket.AF_UNIX)
    return [name.replace("\0", "@") for name in names]


def _listening(descriptor: int) -> socket.socket:
    try:
        taken = socket.socket(fileno=descriptor)
        # A child that kept it would hold the port when this process has ended.
        taken.set_inheritable(False)
    except OSError as error:
        raise InheritedError(f"descriptor {descriptor} was announced and is no socket: {error.strerror}") from error
    if taken.type is not socket.SOCK_STREAM or not taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        # It is not ours, and the object would close it with itself.
        taken.detach()
        raise InheritedError(f"descriptor {descriptor} is not a listening stream socket (ListenStream=, Accept=no)")
    return taken


def _address(listening: socket.socket) -> Address:
    if listening.family is socket.AF_UNIX:
        return Address("localhost", 0)  # this machine's alone, and the file's mode says whose
    host, port = listening.getsockname()[:2]
    return Address(host, port)
