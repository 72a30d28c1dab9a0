import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from gateway.app.workers.worker import READY, VARIABLE, Worker, socket_path
from gateway.state.keys import SigningKeys
from gateway.transports.listener.socket_activation import Inherited

log: Final = structlog.get_logger(__name__)

_MOST_BYTES: Final = 4096
_START_SECONDS: Final = 300.0
"""The time that a worker has to become ready. Loading 10,000 tools takes minutes on a busy machine."""


class WorkerProcess:
    """Runs a worker as a child process with the supervisor's command line, so new workers run newly installed code."""

    def __init__(
        self, number: int, *, directory: Path, listening: Inherited, is_activated: bool, keys: SigningKeys | None
    ) -> None:
        self.number: Final = number
        self._directory: Final = directory
        self._listening: Final = {name: [each.fileno() for each in sockets] for name, sockets in listening.items()}
        self._is_activated: Final = is_activated
        self._keys: Final = keys
        self._process: asyncio.subprocess.Process
        self._control: socket.socket | None = None
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
                env={**environ, VARIABLE: msgspec.json.encode(worker).decode()},
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
        assert self._control is not None  # noqa: S101 - it was started
        received = b""
        try:
            async with asyncio.timeout(_START_SECONDS):
                received = await asyncio.get_running_loop().sock_recv(self._control, len(READY))
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
        """Return True once the worker has sent no heartbeat for `seconds`, or False once the worker has ended."""
        assert self._control is not None  # noqa: S101 - as above
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
        if self._control is not None:
            self._control.close()
        return code

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
