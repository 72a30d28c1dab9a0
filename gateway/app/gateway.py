"""The daemon: makes the parts of all rooms, starts them in order and ends them in the opposite order.

Steps that can fail come first: the file is loaded and compiled before a socket is opened. Every end is bounded: calls
in flight have `drain_timeout`, then they are cancelled, and what ignores its cancellation is abandoned.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog

from gateway.app.assembly import assembled, given_keys
from gateway.app.components import Components
from gateway.app.console_setup import ConsoleSetup
from gateway.app.http_serving import http_server
from gateway.app.listeners import Listeners, check_view, take_sockets
from gateway.app.monitoring.metrics import DaemonMetrics
from gateway.app.monitoring.status import sources
from gateway.app.signals import ExitWatchdog, on_sighup, on_stop_signals
from gateway.app.systemd_notify import ServiceManager
from gateway.app.workers.all_workers import AllWorkers
from gateway.app.workers.worker import Worker
from gateway.background_tasks import BackgroundTasks
from gateway.catalog.compile.apps import APP_MEDIA_TYPE
from gateway.catalog.manifest import Manifest, manifest
from gateway.config.loader import load
from gateway.config.models.server import ConsolePage
from gateway.config.settings import Settings
from gateway.errors import ConfigError, Problem
from gateway.executors.files.executor import SingleFile
from gateway.json_types import JsonObject
from gateway.reload.interpreter_tuning import gc_paused, return_free_memory, tune_interpreter
from gateway.reload.reloader import Trigger
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.telemetry.observer import Observer
from gateway.transports.http_server import HttpServer
from gateway.transports.listener.socket_activation import Inherited
from gateway.transports.memory import MemoryClient
from gateway.transports.stdio.stdio import StandardStreams

log: Final = structlog.get_logger()

CLEAN_UP_SECONDS: Final = 10.0
"""Seconds that the process may take to end once its calls were cancelled: children get SIGTERM, later SIGKILL."""
EXIT_SECONDS: Final = 1.0
"""Seconds for which tasks and threads that a plugin left may hold the process when everything else is closed."""


class Gateway:
    """One daemon. Entering it loads and compiles; `serve` listens until a signal, then drains."""

    def __init__(
        self,
        settings: Settings,
        *,
        observers: Sequence[Observer] = (),
        serves_one_request: bool = False,
        worker: Worker | None = None,
        opens_console: bool = False,
    ) -> None:
        """Start nothing yet.

        Args:
            settings: flags and environment variables of the process.
            observers: called for each call.
            serves_one_request: nobody is there to be told later of what an upstream offers, so its first lists are
                waited for as long as its `connect_timeout`.
            worker: the part of this process, if it is one of several workers.
            opens_console: serve the console although the file does not say so.
        """
        self._settings: Final = settings
        self._observers: Final = tuple(observers)
        self._serves_one_request: Final = serves_one_request
        self._worker: Final = worker
        self._opens_console: Final = opens_console
        self._stack: Final = AsyncExitStack()
        self._stop_wanted: Final = asyncio.Event()
        self._standard_streams: StandardStreams | None = None
        self._inherited: Inherited = {}
        self._leaves_sockets = False
        self._service_manager: Final = ServiceManager(os.environ)
        self._watchdog: ExitWatchdog | None = None
        self._all_workers: AllWorkers | None = None
        self._console_setup: ConsoleSetup | None = None
        """None where the console is not served."""
        self.console_link: str | None = None
        """The URL of the console, with the token that it needs; None where it is not served."""
        self._logs: Logs
        self._components: Components
        self._health: Health

    async def __aenter__(self) -> Self:
        """Load and compile the file, and start everything but the listeners.

        Raises:
            ConfigError: the file cannot be served; it has every problem.
        """
        if self._settings.stdio:
            self._standard_streams = StandardStreams.take()  # before plugins, which may print, are imported
        # Before plugins, whose children would inherit them, are imported.
        self._inherited = take_sockets() if self._worker is None else self._worker.sockets
        async with AsyncExitStack() as stack:
            await self._prepare(stack)
            # Only now: where the start fails or is cancelled, `stack` closes what it had begun.
            self._stack.push_async_callback(stack.pop_all().aclose)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        if self._watchdog is not None:
            exit_code = 0 if error is None else 2 if isinstance(error, ConfigError) else 1
            self._watchdog.arm(seconds=EXIT_SECONDS, exit_code=exit_code)

    async def serve(
        self,
        *,
        on_exit: Callable[[], None] = lambda: None,
        on_started: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Listen until SIGINT, SIGTERM or the end of standard input; then let the calls in flight finish.

        For a process of its own: from the first signal on the process will end, whatever hangs. `on_exit` is called
        from any thread just before it ends without cleaning up. `on_started` is called when the listeners are open.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        seconds = self._settings.drain_timeout.total_seconds() + CLEAN_UP_SECONDS

        def exit_now() -> None:
            # Children would outlive os._exit().
            self._components.services.processes.kill_all()
            on_exit()

        self._watchdog = watchdog = ExitWatchdog(on_exit=exit_now)
        watchdog.start()
        tune_interpreter()
        on_stop_signals(self._stop_wanted.set, watchdog=watchdog, seconds=seconds)
        if self._worker is not None:
            on_stop_signals(self._leave_sockets, watchdog=watchdog, seconds=seconds, signals=[signal.SIGUSR2])
        await self.start()
        if on_started is not None:
            await on_started()
        returning = asyncio.create_task(return_free_memory(), name="return free memory")
        await self._stop_wanted.wait()
        returning.cancel()
        # Again: the end of standard input, or of the supervisor, is no signal, and nothing has armed it then.
        watchdog.arm(seconds=seconds)
        await self.stop()
        log.info("stopped")

    def _leave_sockets(self) -> None:
        """Stop, and leave the sockets to the worker that replaces this one."""
        self._leaves_sockets = True
        self._stop_wanted.set()

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            ConfigError: the address cannot be listened on, or must not be without authentication.
        """
        served = self._components.pipeline.served
        self._components.auditing.open(served)
        self._stack.callback(self._components.auditing.close)
        listeners = Listeners(
            self._settings,
            served,
            http=self._http_server() if self._settings.serves_http else None,
            dispatcher=self._components.dispatcher,
            health=self._health,
            inherited=self._inherited,
            leaves_sockets=lambda: self._leaves_sockets or self._is_activated,
            standard_streams=self._standard_streams,
            on_input_end=self._stop_wanted.set,
        )
        # Before the listeners: no request may come to a replica that does not hear the others yet.
        if self._components.state.replica is not None:
            await self._components.state.replica.open()
        if self._all_workers is not None:
            await self._stack.enter_async_context(self._all_workers.answering())
        await listeners.open(self._stack)
        self._announce_console(listeners)
        await self._components.dispatcher.tasks.recover()
        self._components.listeners = listeners
        self._components.pipeline.listeners = listeners.http
        await self._stack.enter_async_context(self._reloading())
        await self._stack.enter_async_context(self._service_manager.watched())
        # Last: from here on load balancers and the service manager send clients.
        self._health.become_ready()
        self._service_manager.ready(self._summary())
        if self._worker is not None:
            await self._stack.enter_async_context(self._worker.supervised(on_loss=self._stop_wanted.set))

    async def stop(self) -> None:
        """Stop being ready, accept nothing new, end streams, and wait `drain_timeout` for calls in flight."""
        log.info("stopping")
        # First, so that `/-/ready` says no while connections are still taken.
        self._health.begin_stopping()
        self._service_manager.stopping()
        if self._console_setup is not None:
            self._console_setup.drain()
        seconds = self._settings.drain_timeout.total_seconds()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._components.dispatcher.tasks.drain(seconds))
            if self._components.listeners is not None:
                group.create_task(self._components.listeners.drain(seconds))

    def memory_client(self) -> MemoryClient:
        """A client of the newest revision in this process, without a listener, at the view of the settings.

        Raises:
            ConfigError: there is no such view.
        """
        check_view(self._settings.view, self._components.pipeline.served.document.views)
        return MemoryClient(self._components.dispatcher, view=self._settings.view)

    def status(self) -> JsonObject:
        """The answer of `/-/status`."""
        return self._health.status()

    async def manifest(self) -> Manifest:
        """The manifest of what is served, made in a thread: a thousand tools take a while."""
        served = self._components.pipeline.served
        return await asyncio.to_thread(manifest, served.document, served.catalog)

    @property
    def apps(self) -> Mapping[str, Path]:
        """The file of each page that is served for a tool (`app`), by the tool's name."""
        resources = self._components.pipeline.served.catalog.resources.values()
        return {
            each.definition["name"]: Path(each.executor.path)
            for each in resources
            if each.definition.get("mimeType") == APP_MEDIA_TYPE and isinstance(each.executor, SingleFile)
        }

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems that keep the files from being served as they are."""
        return self._components.reloader.status.problems

    @property
    def url(self) -> str | None:
        """The URL of the MCP endpoint; None if HTTP is not served."""
        return None if self._components.http is None else self._components.http.url

    async def _prepare(self, stack: AsyncExitStack) -> None:
        logs = Logs(level=self._settings.log_level, style=self._settings.log_format, mask=str)
        logs.worker = None if self._worker is None else self._worker.number
        self._logs = stack.enter_context(logs)
        keys = given_keys(self._settings, self._worker)
        # Before the file is read: what changes while it is being read is a reason to reload.
        loaded_at = time.time_ns()
        with gc_paused():
            loaded = load(self._settings.config)
        page = loaded.document.listen.console
        if page is not None or self._opens_console:
            number = 0 if self._worker is None else self._worker.number
            self._console_setup = ConsoleSetup(page or ConsolePage(), worker=number, shared_keys=keys)
        self._components = components = await assembled(
            stack,
            self._settings,
            loaded,
            logs=logs,
            loaded_at=loaded_at,
            keys=keys,
            observers=self._observers,
            recorders=() if self._console_setup is None else self._console_setup.observers,
            worker=self._worker,
            serves_one_request=self._serves_one_request,
            keeps_places=self._console_setup is not None,
        )
        self._health = Health(
            sources(components, config=self._settings.config),
            missing=lambda: components.upstreams.unready,
            warnings=lambda: components.state.warnings,
        )
        catalog = components.pipeline.store.current
        log.info("loaded", config=str(self._settings.config), tools=len(catalog.tools), prompts=len(catalog.prompts))

    @asynccontextmanager
    async def _reloading(self) -> AsyncIterator[None]:
        """Reload on SIGHUP and, unless `no_watch` is set, when a file changes; for as long as the context lasts."""
        reloader, tasks = self._components.reloader, BackgroundTasks()
        tasks.begin(reloader.run_for_sources(), name="reload for sources")
        if not self._settings.no_watch:
            tasks.begin(reloader.run(), name="watch files")
        try:
            # Not earlier, when there is nothing to reload: until here `held_signals` keeps one that comes.
            with on_sighup(lambda: tasks.begin(self._sighup(), name="reload on SIGHUP")):
                yield
        finally:
            await tasks.cancel()

    def _http_server(self) -> HttpServer:
        metrics, worker = DaemonMetrics(self._components, health=self._health), self._worker
        if worker is not None:
            self._all_workers = AllWorkers(
                worker, health=self._health, metrics=metrics, logs=self._logs, reload=self._sighup
            )
        if self._console_setup is not None:
            self._stack.push_async_callback(self._console_setup.close)
        return http_server(
            self._components,
            health=self._health,
            metrics=metrics,
            logs=self._logs,
            reload=self._reload,
            config=self._config,
            workers=self._all_workers,
            console_setup=self._console_setup,
        )

    def _announce_console(self, listeners: Listeners) -> None:
        """Log the link to the console. Of several workers one does: the others would log the same."""
        own_url = None if listeners.http is None else listeners.http.own_url
        if self._console_setup is None or own_url is None or (self._worker and self._worker.number):
            return
        base_url = self._components.pipeline.first.listen.public_url or own_url
        self.console_link = self._console_setup.link(base_url.rstrip("/"))
        log.info("console", url=self.console_link)

    async def _sighup(self) -> JsonObject:
        """Reopen the audit log, as log rotation expects of SIGHUP (logrotate(8)), and reload the files."""
        self._components.auditing.reopen()
        return await self._reload(trigger=Trigger.SIGNAL)

    async def _config(self) -> JsonObject:
        return (await self.manifest()).as_json()

    async def _reload(self, *, trigger: Trigger = Trigger.REQUEST) -> JsonObject:
        # systemd.service(5), Type=notify-reload: `systemctl reload` returns when `ready` follows.
        self._service_manager.reloading()
        status = await self._components.reloader.reload(trigger=trigger)
        self._service_manager.ready(self._summary())
        return {
            "generation": self._components.pipeline.store.current.generation,
            "problems": [str(problem) for problem in status.problems],
        }

    def _summary(self) -> str:
        """The state in one line, for the service manager."""
        problems = len(self._components.reloader.status.problems)
        if problems:
            return f"Serving the last good configuration: {problems} problems keep the newer one from being served"
        catalog = self._components.pipeline.store.current
        return f"Serving {len(catalog.tools)} tools, generation {catalog.generation}"

    @property
    def _is_activated(self) -> bool:
        """Whether the service manager holds the sockets of the main listener."""
        return bool(self._inherited.get("")) and (self._worker is None or self._worker.is_activated)
