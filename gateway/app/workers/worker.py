"""A worker: one of several processes that serve the same address, and what its supervisor has handed to it.

Why all of them accept from one socket, and not each from its own (SO_REUSEPORT): what waits in the queue of a shared
socket is taken by whichever worker is free, so that nothing is lost or late when one dies or is replaced. The kernel
deals connections to sockets of their own by a hash, and resets those in the queue of one that is closed (socket(7)).
One socket is also what systemd hands over.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from gateway.config.settings import keys_in
from gateway.state.keys import SigningKeys
from gateway.transports.listener.socket_activation import Inherited

log: Final = structlog.get_logger()

VARIABLE: Final = "MCP_GATEWAY_WORKER"
READY: Final = b"ready\n"
SOCKET_SUFFIX: Final = ".sock"
_ALIVE: Final = b"."
_ALIVE_SECONDS: Final = 1.0


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """The part of one worker; its descriptors are inherited."""

    number: int
    """Told apart by it from those that run at the same time; a worker that ends leaves it to the next one."""
    supervisor: int
    """The process id."""
    directory: str
    """Where each worker has a Unix socket for the others."""
    listening: Mapping[str, list[int]]
    """The descriptors that it accepts from, as those of `Inherited`."""
    control: int
    """One end of a pair: it says there that it is ready, and the other end closes when the supervisor ends."""
    is_activated: bool
    """Whether the service manager holds the sockets, too, so that connections may wait in them."""
    key_bytes: int = 0
    """The length of the signing keys that wait in `control`; 0: the settings have them."""
    key_file: str | None = None
    """The file that these keys are in, and are read again from."""

    @property
    def sockets(self) -> Inherited:
        return {
            name: tuple(socket.socket(fileno=descriptor) for descriptor in descriptors)
            for name, descriptors in self.listening.items()
        }

    def signing_keys(self) -> SigningKeys | None:
        """Take the signing keys that the supervisor has for all workers; None where it has none. To be called once."""
        # Not in the environment, which children and other processes of the user may read (proc_pid_environ(5)).
        # One read has all: they were written in one piece, before this process began, and nothing follows them.
        keys = keys_in(os.read(self.control, self.key_bytes)) if self.key_bytes else ()
        return SigningKeys(keys, file=None if self.key_file is None else Path(self.key_file)) if keys else None

    def state_dir(self, base: Path | None) -> Path | None:
        """A directory of its own below the daemon's: one process at a time may use a state directory."""
        return None if base is None else base / f"worker-{self.number}"

    @property
    def socket_path(self) -> Path:
        return socket_path(Path(self.directory), self.number)

    @asynccontextmanager
    async def supervised(self, *, on_loss: Callable[[], None]) -> AsyncIterator[None]:
        """Say that it is ready, and call `on_loss` if the supervisor ends while the context lasts."""
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=self.control))
        writer.write(READY)
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._watch(reader, on_loss), name="supervisor"),
            loop.create_task(self._say_alive(writer), name="supervisor: heartbeat"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            writer.close()

    async def _say_alive(self, writer: asyncio.StreamWriter) -> None:
        """Say that the event loop goes on: a process whose loop hangs accepts connections, and answers none."""
        with suppress(OSError):
            while True:
                await asyncio.sleep(_ALIVE_SECONDS)
                writer.write(_ALIVE)
                # Bounded by it: a supervisor that is stopped reads nothing, and the buffer must not grow.
                await writer.drain()

    async def _watch(self, reader: asyncio.StreamReader, on_loss: Callable[[], None]) -> None:
        with suppress(OSError):
            await reader.read()
        log.warning("supervisor ended; stopping", supervisor=self.supervisor)
        on_loss()


def socket_path(directory: Path, number: int) -> Path:
    return directory / f"{number}{SOCKET_SUFFIX}"


def take_worker(environ: MutableMapping[str, str]) -> Worker | None:
    """Take what a supervisor gave to this process out of the environment; None for a daemon of its own."""
    given = environ.pop(VARIABLE, "")
    if not given:
        return None
    worker = msgspec.json.decode(given, type=Worker)
    # A copied environment, or a supervisor that has ended meanwhile: its descriptors are not to be touched.
    if worker.supervisor != os.getppid():
        return None
    # A child of a tool must not keep the listener open after the daemon has ended.
    for descriptor in (worker.control, *(each for several in worker.listening.values() for each in several)):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - the function takes it by position alone
    return worker
