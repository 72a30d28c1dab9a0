"""A worker: one of several processes that serve the same address, with the resources from its supervisor.

All workers accept from one socket rather than from one each (SO_REUSEPORT). Any free worker can accept a waiting
connection, so no connection is lost or late when a worker dies or is replaced. With a socket each, the kernel assigns
connections by a hash, and resets waiting connections when a socket is closed (socket(7)).
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

log: Final = structlog.get_logger(__name__)

VARIABLE: Final = "MCP_GATEWAY_WORKER"
READY: Final = b"ready\n"
SOCKET_SUFFIX: Final = ".sock"
_ALIVE: Final = b"."
_ALIVE_SECONDS: Final = 1.0


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one worker. The worker inherits the descriptors."""

    number: int
    """Unique among running workers. The replacement of a worker may reuse the number."""
    supervisor: int
    """The process id."""
    directory: str
    """Contains a Unix socket of each worker."""
    listening: Mapping[str, list[int]]
    """The descriptors of the listening sockets, by the names of `Inherited`."""
    control: int
    """A connection to the supervisor, for readiness and heartbeats."""
    is_activated: bool
    """Whether the service manager holds the sockets, too, so that connections may wait in them."""
    key_bytes: int = 0
    """The length of the signing keys, which the worker reads from `control`; 0: the settings contain the keys."""
    key_file: str | None = None
    """The file from which these keys are read again."""

    @property
    def sockets(self) -> Inherited:
        return {
            name: tuple(socket.socket(fileno=descriptor) for descriptor in descriptors)
            for name, descriptors in self.listening.items()
        }

    def signing_keys(self) -> SigningKeys | None:
        """Read the signing keys from the supervisor; None if there are none. Call this once."""
        # Other processes of the user could read the environment (proc_pid_environ(5)).
        # One read returns all keys: the supervisor wrote them at once, before this process started.
        keys = keys_in(os.read(self.control, self.key_bytes)) if self.key_bytes else ()
        return SigningKeys(keys, file=None if self.key_file is None else Path(self.key_file)) if keys else None

    def state_dir(self, base: Path | None) -> Path | None:
        """Return this worker's subdirectory: only one process can use a state directory."""
        return None if base is None else base / f"worker-{self.number}"

    @property
    def socket_path(self) -> Path:
        return socket_path(Path(self.directory), self.number)

    @asynccontextmanager
    async def supervised(self, *, on_loss: Callable[[], None]) -> AsyncIterator[None]:
        """Report readiness and send heartbeats. Call `on_loss` if the supervisor ends while the context lasts."""
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=self.control))
        writer.write(READY)
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._watch(reader, on_loss), name="supervisor"),
            loop.create_task(self._send_heartbeats(writer), name="supervisor: heartbeat"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            writer.close()

    async def _send_heartbeats(self, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while True:
                await asyncio.sleep(_ALIVE_SECONDS)
                writer.write(_ALIVE)
                # A stopped supervisor reads nothing, and the buffer must not grow.
                await writer.drain()

    async def _watch(self, reader: asyncio.StreamReader, on_loss: Callable[[], None]) -> None:
        with suppress(OSError):
            await reader.read()
        log.warning("supervisor ended; stopping", supervisor=self.supervisor)
        on_loss()


def socket_path(directory: Path, number: int) -> Path:
    return directory / f"{number}{SOCKET_SUFFIX}"


def take_worker(environ: MutableMapping[str, str]) -> Worker | None:
    """Remove the settings of a worker from the environment, and return them; None without a supervisor."""
    given = environ.pop(VARIABLE, "")
    if not given:
        return None
    worker = msgspec.json.decode(given, type=Worker)
    # The environment was copied, or the supervisor has ended: the descriptors are other files.
    if worker.supervisor != os.getppid():
        return None
    # Child processes of tools must not keep the listener open after the daemon has ended.
    for descriptor in (worker.control, *(each for several in worker.listening.values() for each in several)):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - the function takes it by position alone
    return worker
