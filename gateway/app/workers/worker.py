"""Implements a worker process, which shares its listening sockets with the other workers.

Any free worker accepts a connection, and no connection is lost when a worker ends. With separate sockets (SO_REUSEPORT,
socket(7)), the kernel would assign connections by hash, and reset waiting connections when a socket closes.
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
    """The parameters that the supervisor passes to a worker."""

    number: int
    """A number that is unique among running workers. A later worker may reuse the number."""
    supervisor: int
    directory: str
    listening: Mapping[str, list[int]]
    """The file descriptors of the listening sockets, by the names that `Inherited` uses."""
    control: int
    """The file descriptor of the connection to the supervisor, for readiness and heartbeats."""
    is_activated: bool
    """Whether the service manager also holds the sockets."""
    key_bytes: int = 0
    """The length of the signing keys that the worker reads from `control`, or 0 if the settings contain the keys."""
    key_file: str | None = None

    @property
    def sockets(self) -> Inherited:
        return {
            name: tuple(socket.socket(fileno=descriptor) for descriptor in descriptors)
            for name, descriptors in self.listening.items()
        }

    def signing_keys(self) -> SigningKeys | None:
        """Read the signing keys from the supervisor. Call this method only once."""
        # The keys are not in the environment, which other processes can read (proc_pid_environ(5)). The supervisor
        # wrote all keys before the worker started, so one read is enough.
        keys = keys_in(os.read(self.control, self.key_bytes)) if self.key_bytes else ()
        return SigningKeys(keys, file=None if self.key_file is None else Path(self.key_file)) if keys else None

    def state_dir(self, base: Path | None) -> Path | None:
        """Return the subdirectory for this worker, because only one process can use a state directory."""
        return None if base is None else base / f"worker-{self.number}"

    @property
    def socket_path(self) -> Path:
        return socket_path(Path(self.directory), self.number)

    @asynccontextmanager
    async def supervised(self, *, on_loss: Callable[[], None]) -> AsyncIterator[None]:
        """Report readiness to the supervisor and send heartbeats. Call `on_loss` if the supervisor ends."""
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
                await writer.drain()

    async def _watch(self, reader: asyncio.StreamReader, on_loss: Callable[[], None]) -> None:
        with suppress(OSError):
            await reader.read()
        log.warning("supervisor ended; stopping", supervisor=self.supervisor)
        on_loss()


def socket_path(directory: Path, number: int) -> Path:
    return directory / f"{number}{SOCKET_SUFFIX}"


def take_worker(environ: MutableMapping[str, str]) -> Worker | None:
    """Take the worker's parameters out of the environment. Return None if this process is not a worker."""
    given = environ.pop(VARIABLE, "")
    if not given:
        return None
    worker = msgspec.json.decode(given, type=Worker)
    # The descriptors are only valid in a child of the supervisor.
    if worker.supervisor != os.getppid():
        return None
    # Child processes of tools must not inherit the sockets.
    for descriptor in (worker.control, *(each for several in worker.listening.values() for each in several)):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - the function has no keywords
    return worker
