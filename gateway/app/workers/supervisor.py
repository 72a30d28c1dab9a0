"""Runs the parent process of all workers, which restarts workers and forwards signals.

SIGTERM and SIGINT drain all workers, and SIGHUP reloads their configuration. SIGUSR2 replaces the workers one by one. A
new worker serves requests before the old worker drains. Only the supervisor notifies systemd.
"""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import structlog

from gateway.app.systemd_notify import ServiceManager
from gateway.app.workers.all_workers import RELOAD_SECONDS, ask_workers
from gateway.app.workers.worker import WorkerProcess
from gateway.config.loader import load
from gateway.config.models.address import Address
from gateway.config.models.server import Listen
from gateway.config.secrets.redactor import Redactor
from gateway.config.settings import Settings, flag_of, own_secrets
from gateway.errors import ConfigError, Problem
from gateway.held_signals import came_early
from gateway.json_types import Json
from gateway.state.keys import SigningKeys, own_keys
from gateway.state.state import StateDirectory, directory_of
from gateway.telemetry.logs import Logs
from gateway.transports.listener.http_listener import reason_of
from gateway.transports.listener.socket_activation import ADMIN, Inherited

log: Final = structlog.get_logger(__name__)

_STEADY_SECONDS: Final = 60.0
"""A worker that has served for this number of seconds is restarted without delay."""
_MAX_DELAY_SECONDS: Final = 30.0
_SILENCE_SECONDS: Final = 30.0
"""A worker is killed after this number of seconds without a heartbeat. Workers send a heartbeat each second."""
_EXIT_SECONDS: Final = 15.0
"""How many seconds a drained worker has to end its child processes and exit."""


class Supervisor:
    def __init__(self, settings: Settings, *, count: int, activated: Inherited) -> None:
        self._settings: Final = settings
        self._count: Final = count
        self._activated: Final = activated
        self._manager: Final = ServiceManager(os.environ)
        self._sockets: Inherited = activated
        self._directory: Path
        self._keys: SigningKeys | None
        self._stopping: Final = asyncio.Event()
        self._replacement_wanted: Final = asyncio.Event()
        self._exit_code = 0
        self._running: Final[set[WorkerProcess]] = set()
        self._serving: Final[list[WorkerProcess]] = []
        """The workers by slot. A new worker takes the slot of the worker that it replaces."""
        self._changing: Final = [asyncio.Lock() for _ in range(count)]
        """Locks by slot, each held while a worker is restarted or replaced."""
        self._tasks: Final[dict[str, asyncio.Task[None]]] = {}

    async def run(self) -> int:
        """Serve until a stop signal and return the exit code. Raise ConfigError if files or addresses are invalid."""
        redactor = Redactor([*own_secrets(os.environ)])
        settings = self._settings
        with Logs(level=settings.log_level, style=settings.log_format, mask=redactor.text):
            self._handle_signals()
            if not self._activated:
                self._sockets = await bound_sockets(settings, load(settings.config).document.listen)
            sockets = TemporaryDirectory(prefix="mcp-gateway-workers-", ignore_cleanup_errors=True)
            with sockets as directory, shared_keys(settings) as self._keys:
                self._directory = Path(directory)
                async with self._ended():
                    return await self._serve()

    async def _serve(self) -> int:
        # Start one worker first, so that configuration problems are reported once.
        first = await self._start()
        if not await first.becomes_ready():
            if self._exit_code or self._stopping.is_set():
                return self._exit_code
            code = await self._end_of(first)
            return code if code >= 0 else 128 - code  # shells report a signal as 128 plus its number
        self._serving.append(first)
        others = [await self._start() for _ in range(1, self._count)]
        self._serving.extend(others)
        # `_keep` restarts workers that do not become ready.
        await asyncio.gather(*(each.becomes_ready() for each in others))
        for slot in range(self._count):
            self._begin(f"worker {slot}", self._keep(slot))
        log.info("workers ready", workers=self._count, processes=[each.pid for each in self._serving])
        self._begin("replacement", self._replace_when_wanted())
        self._manager.ready()
        async with self._manager.watched():
            await self._stopping.wait()
        return self._exit_code

    async def _keep(self, slot: int) -> None:
        delay = 0.0
        while not self._stopping.is_set():
            process = self._serving[slot]
            await process.has_ended.wait()
            async with self._changing[slot]:
                if self._serving[slot] is not process or self._stopping.is_set():
                    continue
                delay = 0.0 if process.served_seconds >= _STEADY_SECONDS else delay
                log.error("worker ended", worker=process.number, exit_code=process.exit_code, restart_seconds=delay)
                if await self._stops_within(delay):
                    return
                delay = min(max(1.0, 2 * delay), _MAX_DELAY_SECONDS)
                if (successor := await self._started()) is None:
                    continue
                self._serving[slot] = successor
                if await successor.becomes_ready():
                    log.info("worker restarted", worker=successor.number, process=successor.pid)

    async def _replace_when_wanted(self) -> None:
        while await self._replacement_wanted.wait():
            self._replacement_wanted.clear()
            await self._replace_all()

    async def _replace_all(self) -> None:
        log.info("replacing workers")
        for slot in range(self._count):
            async with self._changing[slot]:
                predecessor, successor = self._serving[slot], await self._started()
                if successor is None or self._stopping.is_set():
                    return
                if not await successor.becomes_ready():
                    if self._stopping.is_set():
                        return
                    log.error(
                        "workers not replaced: a new worker did not start", exit_code=await self._end_of(successor)
                    )
                    return
                self._serving[slot] = successor
            # The successor uses the same socket, so load balancers need no notice.
            predecessor.send(signal.SIGUSR2)
            await self._end_of(predecessor)
        log.info("workers replaced", processes=[each.pid for each in self._serving])

    async def _reload(self) -> None:
        self._manager.reloading()
        for each in self._running:
            # Starting workers have no Unix socket, but keep the signal until they can handle it.
            if not each.is_ready:
                each.send(signal.SIGHUP)
        await ask_workers(self._directory, "POST", "/reload", seconds=RELOAD_SECONDS)
        self._manager.ready()

    async def _started(self) -> WorkerProcess | None:
        if self._stopping.is_set():  # the sockets are closed
            return None
        try:
            return await self._start()
        except OSError as error:
            # The system is out of memory or processes. The other workers continue.
            log.error("worker not started", reason=error.strerror)  # noqa: TRY400 - the traceback would add nothing
            return None

    async def _start(self) -> WorkerProcess:
        taken = {each.number for each in self._running}
        # A worker and its replacement run at the same time.
        number = next(number for number in range(2 * self._count + 1) if number not in taken)
        process = WorkerProcess(
            number,
            directory=self._directory,
            listening=self._sockets,
            is_activated=bool(self._activated),
            keys=self._keys,
        )
        await process.start(os.environ)
        self._running.add(process)
        self._begin(f"end of process {process.pid}", self._forget(process))
        self._begin(f"silence of process {process.pid}", self._kill_silent(process))
        # Stop the new worker if `_stop` was called during the start.
        if self._stopping.is_set():
            process.send(self._stop_signal)
        return process

    async def _forget(self, process: WorkerProcess) -> None:
        await process.ended()
        self._running.discard(process)

    async def _kill_silent(self, process: WorkerProcess) -> None:
        if await process.falls_silent(_SILENCE_SECONDS):
            log.error(
                "worker killed: no heartbeat", worker=process.number, process=process.pid, silent=_SILENCE_SECONDS
            )
            process.send(signal.SIGKILL)

    async def _end_of(self, process: WorkerProcess) -> int:
        try:
            async with asyncio.timeout(self._settings.drain_timeout.total_seconds() + _EXIT_SECONDS):
                await process.has_ended.wait()
        except TimeoutError:
            log.warning("worker killed: it did not exit in time", worker=process.number)
            process.send(signal.SIGKILL)
            await process.has_ended.wait()
        return process.exit_code or 0

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    @property
    def _stop_signal(self) -> signal.Signals:
        # SIGUSR2 keeps connections waiting in systemd's sockets for the next daemon.
        return signal.SIGUSR2 if self._activated else signal.SIGTERM

    def _stop(self, number: signal.Signals) -> None:
        if self._stopping.is_set():  # workers exit at once on a second signal
            self._exit_code = 128 + number
        else:
            log.info("stopping", workers=len(self._running))
            self._manager.stopping()
            self._stopping.set()
            self._close_sockets()
        for each in self._running:
            each.send(self._stop_signal)

    def _begin(self, name: str, work: Coroutine[Json, Json, None]) -> None:
        task = self._tasks[name] = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(lambda ended: self._done(name, ended))

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("supervisor failed", task=name, exc_info=error)
            self._exit_code = self._exit_code or 1
            if not self._stopping.is_set():
                self._stop(signal.SIGTERM)

    def _handle_signals(self) -> None:
        # The handlers stay until the process ends, because a default action would change the exit code.
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: lambda: self._stop(signal.SIGTERM),
            signal.SIGINT: lambda: self._stop(signal.SIGINT),
            signal.SIGHUP: lambda: self._begin("reload", self._reload()),
            signal.SIGUSR2: self._replacement_wanted.set,
        }
        for number, handle in handlers.items():
            before = signal.getsignal(number)
            asyncio.get_running_loop().add_signal_handler(number, handle)
            if came_early(before):
                handle()

    @asynccontextmanager
    async def _ended(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            if not self._stopping.is_set():
                self._stopping.set()
                for each in self._running:
                    each.send(self._stop_signal)
            await asyncio.gather(*(self._end_of(each) for each in [*self._running]))
            self._close_sockets()

    def _close_sockets(self) -> None:
        for each in (each for several in self._sockets.values() for each in several):
            each.close()


async def bound_sockets(settings: Settings, listen: Listen) -> Inherited:
    """Bind the listening sockets. Raise ConfigError if an address cannot be bound."""
    main = Address.parse(listen.http) if settings.http is None else settings.http
    source = "listen.http" if settings.http is None else flag_of("http")
    sockets = {"": await _bound(main, source)}
    if listen.admin is not None:
        sockets[ADMIN] = await _bound(Address.parse(listen.admin), "listen.admin")
    return sockets


async def _bound(address: Address, source: str) -> tuple[socket.socket, ...]:
    try:
        # `create_server` binds every address of a host name, with the same socket options as a single process.
        server = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, address.host, address.port, start_serving=False
        )
    except OSError as error:
        raise ConfigError([Problem(message=reason_of(error, address), path=source)]) from error
    try:
        # Return copies, because `close` closes the original sockets.
        return tuple(socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets)
    finally:
        server.close()


@contextmanager
def shared_keys(settings: Settings) -> Iterator[SigningKeys | None]:
    """Yield the signing keys in the state directory, which stays locked. Yield None if the settings contain keys."""
    if settings.signing_keys():
        yield None
        return
    # Workers do not lock this directory, but each worker locks a subdirectory.
    with StateDirectory(directory_of(settings.state_dir, config=settings.config, environ=os.environ)) as directory:
        if directory.problem:
            log.warning("signing keys not written; they are kept in memory", reason=directory.problem)
        yield own_keys(directory.path)
