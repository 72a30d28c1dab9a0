"""Worker processes and their heartbeats.

`Worker` is used in the worker itself, and `WorkerProcess` in the supervisor. The workers of a daemon share their
listening sockets. Any free worker accepts a connection, and no connection is lost when a worker ends. With separate
sockets (SO_REUSEPORT, socket(7)), the kernel would assign connections by hash, and reset waiting connections when a
socket closes.
"""

import asyncio
import os
import signal
import socket
import sys
import time
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

_VARIABLE: Final = "MCP_GATEWAY_WORKER"
_READY: Final = b"ready\n"
SOCKET_SUFFIX: Final = ".sock"
_ALIVE: Final = b"."
_ALIVE_SECONDS: Final = 1.0
_MOST_BYTES: Final = 4096
_START_SECONDS: Final = 300.0
"""How many seconds a worker has to become ready. Loading 10,000 tools takes minutes on a busy machine."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that the supervisor passes to a worker."""

    number: int
    """Unique among running workers. A later worker can have the same number."""
    supervisor: int
    directory: str
    listening: Mapping[str, list[int]]
    """The file descriptors of the listening sockets. The keys are those of `Inherited`."""
    control: int
    """The file descriptor of the connection to the supervisor, for readiness and heartbeats."""
    is_activated: bool
    """Whether systemd created the sockets (socket activation) and keeps them open."""
    key_bytes: int = 0
    """The length of the signing keys that the worker reads from `control`, in bytes. 0 if the settings contain keys."""
    key_file: str | None = None

    @property
    def sockets(self) -> Inherited:
        return {
            name: tuple(socket.socket(fileno=descriptor) for descriptor in descriptors)
            for name, descriptors in self.listening.items()
        }

    def signing_keys(self) -> SigningKeys | None:
        """Read the signing keys from the supervisor. The keys can only be read once."""
        # The keys are not in the environment, which other processes can read (proc_pid_environ(5)). The supervisor
        # wrote all keys before the worker started, so one read is enough.
        keys = keys_in(os.read(self.control, self.key_bytes)) if self.key_bytes else ()
        return SigningKeys(keys, file=None if self.key_file is None else Path(self.key_file)) if keys else None

    def state_dir(self, base: Path | None) -> Path | None:
        """Return this worker's subdirectory of the state directory. Several processes cannot share a directory."""
        return None if base is None else base / f"worker-{self.number}"

    @asynccontextmanager
    async def supervised(self, *, on_loss: Callable[[], None]) -> AsyncIterator[None]:
        """Report readiness to the supervisor and send heartbeats. Call `on_loss` if the supervisor ends."""
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=self.control))
        writer.write(_READY)
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
    """Remove the worker's parameters from the environment and return them, or None if this process is not a worker."""
    given = environ.pop(_VARIABLE, "")
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


class WorkerProcess:
    """Runs a worker as a child process.

    The child has the command line of the supervisor, so a new worker runs newly installed code.
    """

    def __init__(
        self, number: int, *, directory: Path, listening: Inherited, is_activated: bool, keys: SigningKeys | None
    ) -> None:
        self.number: Final = number
        self._directory: Final = directory
        self._listening: Final = {name: [each.fileno() for each in sockets] for name, sockets in listening.items()}
        self._is_activated: Final = is_activated
        self._keys: Final = keys
        self._process: asyncio.subprocess.Process
        self._control: socket.socket
        self._ready_at: float | None = None
        self._has_started: Final = asyncio.Event()
        """Set once the worker is ready or has failed to start."""
        self.has_ended: Final = asyncio.Event()

    async def start(self, environ: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        keys = b"" if self._keys is None else b"\n".join(self._keys())
        ours.sendall(keys)
        # loop.sock_recv() needs a non-blocking socket.
        ours.settimeout(0)
        worker = Worker(
            number=self.number,
            supervisor=os.getpid(),
            directory=str(self._directory),
            listening=self._listening,
            control=theirs.fileno(),
            is_activated=self._is_activated,
            key_bytes=len(keys),
            key_file=None if self._keys is None or self._keys.file is None else str(self._keys.file),
        )
        # Close the child's socket here once the child has a copy, so that reads notice the end of the child.
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *sys.orig_argv[1:],
                stdin=asyncio.subprocess.DEVNULL,
                env={**environ, _VARIABLE: msgspec.json.encode(worker).decode()},
                pass_fds=[theirs.fileno(), *(each for several in self._listening.values() for each in several)],
                start_new_session=True,  # the supervisor forwards Ctrl-C
            )
        self._control = ours

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    @property
    def is_ready(self) -> bool:
        return self._ready_at is not None and not self.has_ended.is_set()

    @property
    def served_seconds(self) -> float:
        return 0.0 if self._ready_at is None else time.monotonic() - self._ready_at

    async def becomes_ready(self) -> bool:
        """Wait until the worker is ready. Return False if the worker ends first or is killed after a timeout."""
        received = b""
        try:
            async with asyncio.timeout(_START_SECONDS):
                received = await asyncio.get_running_loop().sock_recv(self._control, len(_READY))
        except TimeoutError:
            log.error(  # noqa: TRY400 - the traceback would only show this wait
                "worker killed: it did not become ready", worker=self.number, seconds=_START_SECONDS
            )
            self.send(signal.SIGKILL)
        except OSError:
            pass  # the worker has ended
        if received:
            self._ready_at = time.monotonic()
        self._has_started.set()
        return bool(received)

    async def falls_silent(self, seconds: float) -> bool:
        """Return True after `seconds` without a heartbeat from the worker, or False when the worker has ended."""
        await self._has_started.wait()
        loop, is_suspect = asyncio.get_running_loop(), False
        while not self.has_ended.is_set():
            try:
                async with asyncio.timeout(0.1 if is_suspect else seconds):
                    if not await loop.sock_recv(self._control, _MOST_BYTES):
                        return False
                is_suspect = False
            except TimeoutError:
                if is_suspect:
                    return True
                is_suspect = True  # check again: if this process was suspended, heartbeats can still be unread
            except OSError:
                return False
        return False

    async def ended(self) -> int:
        code = await self._process.wait()
        self.has_ended.set()
        self._has_started.set()
        socket_path(self._directory, self.number).unlink(missing_ok=True)
        self._control.close()
        return code

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
