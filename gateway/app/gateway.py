"""Starts, drains and stops a daemon.

Every step of the shutdown has a time limit. Calls in flight are cancelled after `drain_timeout`, and code that ignores
its cancellation is abandoned.
"""

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Final, Self

import structlog

from gateway.access.identity import ANONYMOUS, Identity
from gateway.app.build import build
from gateway.app.listeners import check_view, drain, open_listeners
from gateway.app.parts import App
from gateway.app.signals import ExitWatchdog, on_stop_signals
from gateway.app.systemd_notify import ServiceManager
from gateway.app.workers.all_workers import worker_endpoint
from gateway.app.workers.worker import Worker
from gateway.catalog.manifest import Manifest, manifest
from gateway.config.models.auth import Auth
from gateway.config.settings import Settings
from gateway.errors import ConfigError, Problem
from gateway.json_types import JsonObject
from gateway.platform_facilities import return_large_blocks
from gateway.telemetry.observer import Observer
from gateway.transports.listener.socket_activation import Inherited, take_inherited
from gateway.transports.memory import MemoryClient
from gateway.transports.stdio.stdio import StandardStreams

log: Final = structlog.get_logger(__name__)

CLEAN_UP_SECONDS: Final = 10.0
"""How many seconds the clean-up can take after calls are cancelled. Child processes receive SIGTERM, then SIGKILL."""
EXIT_SECONDS: Final = 1.0
"""How many seconds tasks and threads of plugins have to end after everything else is closed."""


class Gateway:
    """Runs one daemon. `async with` loads the configuration, and `serve` listens until a stop signal."""

    def __init__(  # noqa: PLR0913 - the inputs of the daemon
        self,
        settings: Settings,
        *,
        observers: Sequence[Observer] = (),
        serves_one_request: bool = False,
        worker: Worker | None = None,
        opens_console: bool = False,
        hidden_events: frozenset[str] = frozenset(),
    ) -> None:
        """Create a daemon that is not started yet.

        Args:
            settings: flags and environment variables.
            observers: objects that are notified of each call.
            serves_one_request: wait up to `connect_timeout` for the lists of upstream servers, and do not serve HTTP.
            worker: the parameters of this worker, or None if the daemon is a single process.
            opens_console: serve the console even without `listen.console`.
            hidden_events: log records of these events are not written.
        """
        self._settings: Final = settings
        self._worker: Final = worker
        self._stack: Final = AsyncExitStack()
        self._stop_wanted: Final = asyncio.Event()
        self._inherited: Inherited = {}
        self._leaves_sockets = False
        self._service_manager: Final = ServiceManager(os.environ)
        self._build: Final = partial(
            build,
            settings,
            service_manager=self._service_manager,
            observers=tuple(observers),
            worker=worker,
            serves_one_request=serves_one_request,
            opens_console=opens_console,
            hidden_events=hidden_events,
        )
        self._watchdog: ExitWatchdog | None = None
        self.console_link: str | None = None
        """The console's URL with an access token, or None until the console is served."""
        self.app: App

    async def __aenter__(self) -> Self:
        """Load the configuration, and start everything except the listeners. Raise ConfigError for invalid files."""
        # Plugins may print or start child processes, which must not use the client's streams or inherit sockets.
        standard_streams = StandardStreams.take() if self._settings.stdio else None
        self._inherited = take_inherited() if self._worker is None else self._worker.sockets
        async with AsyncExitStack() as stack:
            self.app = await self._build(stack, inherited=self._inherited, standard_streams=standard_streams)
            # If the start fails or is cancelled, the local `stack` closes the parts that were started.
            self._stack.push_async_callback(stack.pop_all().aclose)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        if self._watchdog is not None:
            exit_code = 0 if error is None else 2 if isinstance(error, ConfigError) else 1
            self._watchdog.arm(seconds=EXIT_SECONDS, exit_code=exit_code)

    async def serve(self, *, on_started: Callable[[], Awaitable[None]] | None = None) -> None:
        """Listen until SIGINT, SIGTERM or the end of standard input, then drain.

        After the first signal, the process exits within a time limit, even if some code hangs.
        """
        seconds = self._settings.drain_timeout.total_seconds() + CLEAN_UP_SECONDS
        self._watchdog = watchdog = ExitWatchdog(on_exit=self.app.core.services.processes.kill_all)
        watchdog.start()
        return_large_blocks()
        gc.freeze()  # objects of imported modules are never freed
        on_stop_signals(self._stop_wanted.set, watchdog=watchdog, seconds=seconds)
        if self._worker is not None:
            on_stop_signals(self._leave_sockets, watchdog=watchdog, seconds=seconds, signals=[signal.SIGUSR2])
        await self.start()
        if on_started is not None:
            await on_started()
        await self._stop_wanted.wait()
        # Arm the watchdog also if standard input or the supervisor has ended, because only signals arm it.
        watchdog.arm(seconds=seconds)
        await self.stop()
        log.info("stopped")

    def _leave_sockets(self) -> None:
        self._leaves_sockets = True
        self._stop_wanted.set()

    async def start(self) -> None:
        """Open the listeners and report readiness. Raise ConfigError if an address cannot be used."""
        app, core = self.app, self.app.core
        core.audit.open(core.pipeline.served)
        self._stack.callback(core.audit.close)
        # A replica must receive messages from other replicas before it serves requests.
        if core.state.replica is not None:
            await core.state.replica.open()
        if self._worker is not None and app.http is not None:
            await self._stack.enter_async_context(worker_endpoint(self._worker, app))
        await open_listeners(app, self._stack, inherited=self._inherited, on_input_end=self._stop_wanted.set)
        self._announce_console()
        await core.dispatcher.tasks.recover()
        await self._stack.enter_async_context(app.reloads.running(watches_files=not self._settings.no_watch))
        await self._stack.enter_async_context(self._service_manager.watched())
        # From here on, load balancers and the service manager send clients to this process.
        core.health.become_ready()
        self._service_manager.ready()
        if self._worker is not None:
            await self._stack.enter_async_context(self._worker.supervised(on_loss=self._stop_wanted.set))

    async def stop(self) -> None:
        log.info("stopping")
        # `/-/ready` must fail while connections are still accepted.
        self.app.core.health.begin_stopping()
        self._service_manager.stopping()
        self.app.console_feed.drain()
        seconds = self._settings.drain_timeout.total_seconds()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.app.core.dispatcher.tasks.drain(seconds))
            group.create_task(drain(self.app, seconds, leaves_sockets=self._leaves_sockets or self._is_activated))

    def memory_client(self, identity: Identity = ANONYMOUS) -> MemoryClient:
        """Return an in-process client of the configured view. Raise ConfigError if the view does not exist."""
        check_view(self._settings.view, self.app.core.pipeline.served.document.views)
        return MemoryClient(self.app.core.dispatcher, view=self._settings.view, identity=identity)

    @property
    def auth(self) -> Auth | None:
        return self.app.core.pipeline.served.document.auth

    def status(self) -> JsonObject:
        return self.app.status()

    async def manifest(self) -> Manifest:
        served = self.app.core.pipeline.served
        # Build the manifest in a thread, because this takes a while for 1,000 tools.
        return await asyncio.to_thread(manifest, served.document, served.catalog)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of the last reload, or an empty tuple if the reload succeeded."""
        return self.app.core.reloader.status.problems

    @property
    def url(self) -> str | None:
        """The URL of the MCP endpoint, or None if HTTP is not served."""
        return None if self.app.http is None else self.app.http.url

    def _announce_console(self) -> None:
        app = self.app
        admin_url = None if app.http is None else app.http.admin_url
        if app.console is None or admin_url is None or (self._worker and self._worker.number):
            return
        base_url = app.core.pipeline.first.listen.public_url or admin_url
        self.console_link = app.console.link(base_url.rstrip("/"))
        log.info("console", url=self.console_link)

    @property
    def _is_activated(self) -> bool:
        return bool(self._inherited.get("")) and (self._worker is None or self._worker.is_activated)
