"""The daemon: makes the parts of all rooms, starts them in order and ends them in the opposite order.

Steps that can fail come first: the file is loaded and compiled before a socket is opened. Every end is bounded: calls
in flight have `drain_timeout`, then they are cancelled, and what ignores its cancellation is abandoned.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import structlog

from gateway.access.identity.authenticator import Authenticator
from gateway.app.catalog_agreement import CatalogAgreement
from gateway.app.json_fetcher import JsonFetcher
from gateway.app.listeners import Listeners, check_view
from gateway.app.optional_sources import OptionalSource, Upstreams, openapi_documents
from gateway.app.reports.about import about
from gateway.app.reports.clients import RecentClients
from gateway.app.reports.components import Components
from gateway.app.reports.metric_sources import metric_sources, names
from gateway.app.reports.status import sources
from gateway.app.reports.tasks import TaskReport
from gateway.app.reports.upstream_metrics import UpstreamMetrics
from gateway.app.shared_changes import SharedChanges
from gateway.app.signals import ExitWatchdog, StopSignals, on_sighup
from gateway.app.systemd_notify import ServiceManager
from gateway.app.workers.worker import Worker
from gateway.audit.recorder import AuditRecorder
from gateway.catalog.compile.apps import APP_MEDIA_TYPE
from gateway.catalog.manifest import Manifest, manifest
from gateway.config.loader import load
from gateway.config.models.address import Address
from gateway.config.models.console import ConsolePage
from gateway.config.settings import MIN_KEY_LENGTH, Settings, variable_of
from gateway.errors import ConfigError, Problem
from gateway.executors.files.executor import SingleFile
from gateway.executors.shared_services import Services, running_services
from gateway.json_types import Json, JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.reload.interpreter import gc_paused, tune_interpreter
from gateway.reload.pipeline import Candidate, ReloadPipeline
from gateway.reload.reloader import Reloader, Trigger
from gateway.state.directory import directory_of
from gateway.state.keys import SigningKeys
from gateway.state.state import State
from gateway.tasks.leases import Leases
from gateway.tasks.redis_store import RedisTaskStore
from gateway.tasks.sqlite_store import TASKS, open_task_store
from gateway.telemetry.call_metrics import CallMetrics
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.telemetry.metrics_exposition import MetricsExposition
from gateway.telemetry.observer import Observer
from gateway.telemetry.trace import untraced
from gateway.telemetry.tracing import open_tracing
from gateway.transports.http.admin_api import AdminApi
from gateway.transports.http_server import HttpServer, ServerLimits
from gateway.transports.listener.socket_activation import Inherited, InheritedError, take_inherited
from gateway.transports.memory import MemoryClient
from gateway.transports.stdio.standard_streams import StandardStreams
from gateway.transports.streamable_http.sessions import SessionPersistence

if TYPE_CHECKING:
    from gateway.app.console_parts import ConsoleParts
    from gateway.app.workers.all_workers import AllWorkers
    from gateway.console.console import Console
    from gateway.openapi.source import OpenApiSource

log: Final = structlog.get_logger()

_CONSOLE: Final = "gateway.app.console_parts"
"""Imported only where the console is served: others start without it."""
_ALL_WORKERS: Final = "gateway.app.workers.all_workers"
"""Imported only in a worker."""
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
        self._opens_console: Final = opens_console
        self._console_parts: ConsoleParts | None = None
        self._console: Console | None = None
        self._worker: Final = worker
        self._all_workers: AllWorkers | None = None
        self._leaves_sockets = False
        self._serves_one_request: Final = serves_one_request
        self._settings: Final = settings
        self._observers: Final = tuple(observers)
        self._stack: Final = AsyncExitStack()
        self._stop_wanted: Final = asyncio.Event()
        self._standard_streams: StandardStreams | None = None
        self._inherited: Inherited = {}
        self._service_manager: Final = ServiceManager(os.environ)
        self._listeners: Listeners | None = None
        self._watchdog: ExitWatchdog | None = None
        self._call_metrics: Final = CallMetrics()
        self._recent_clients: Final = RecentClients()
        self._pipeline: ReloadPipeline | None = None
        self.console_link: str | None = None
        """The URL of the console, with the token that it needs; None where it is not served."""
        self._shared_keys: SigningKeys | None = None
        self._health: Health
        self._authenticator: Authenticator
        self._services: Services
        self._logs: Logs
        self._dispatcher: Dispatcher
        self._reloader: Reloader[Candidate]
        self._auditing: AuditRecorder
        self._state: State
        self._upstreams: Upstreams
        self._documents: OptionalSource[OpenApiSource]

    async def __aenter__(self) -> Self:
        """Load and compile the file, and start everything but the listeners.

        Raises:
            ConfigError: the file cannot be served; it has every problem.
        """
        if self._settings.stdio:
            self._standard_streams = StandardStreams.take()  # before plugins, which may print, are imported
        self._inherited = (
            take_sockets() if self._worker is None else self._worker.sockets
        )  # before plugins, whose children would inherit them, are imported
        async with AsyncExitStack() as stack:
            await self._prepare(stack)
            self._stack.push_async_callback(stack.pop_all().aclose)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        if self._watchdog is not None:
            exit_code = 0 if error is None else 2 if isinstance(error, ConfigError) else 1
            self._watchdog.arm(seconds=EXIT_SECONDS, exit_code=exit_code)

    async def serve(self, *, on_exit: Callable[[], None] = lambda: None) -> None:
        """Listen until SIGINT, SIGTERM or the end of standard input; then let the calls in flight finish.

        For a process of its own: from the first signal on the process will end, whatever hangs. `on_exit` is called
        from any thread just before it ends without cleaning up.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        seconds = self._settings.drain_timeout.total_seconds() + CLEAN_UP_SECONDS

        def exit_now() -> None:
            self._services.processes.kill_all()
            on_exit()

        self._watchdog = watchdog = ExitWatchdog(on_exit=exit_now)
        watchdog.start()
        tune_interpreter()
        stop = StopSignals(on_stop=self._stop_wanted.set, watchdog=watchdog, seconds=seconds)
        with stop, self._replacement(watchdog, seconds=seconds):
            await self.start()
            await self._stop_wanted.wait()
            watchdog.arm(seconds=seconds)
            await self.stop()

    def _replacement(self, watchdog: ExitWatchdog, *, seconds: float) -> AbstractContextManager[object]:
        """A handler of the signal by which a worker leaves its sockets to another one, and stops."""
        if self._worker is None:
            return nullcontext()

        def leave() -> None:
            self._leaves_sockets = True
            self._stop_wanted.set()

        return StopSignals(on_stop=leave, watchdog=watchdog, seconds=seconds, signals=[signal.SIGUSR2])

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            ConfigError: the address cannot be listened on, or must not be without authentication.
        """
        served = self._live.served
        self._auditing.open(served)
        self._stack.callback(self._auditing.close)
        listeners = Listeners(
            self._settings,
            served,
            http=self._http_server(served),
            dispatcher=self._dispatcher,
            health=self._health,
            inherited=self._inherited,
            leaves_sockets=lambda: self._leaves_sockets or self._is_activated,
            standard_streams=self._standard_streams,
            on_input_end=self._stop_wanted.set,
        )
        if self._state.replica is not None:
            await self._state.replica.open()
        if self._all_workers is not None:
            await self._stack.enter_async_context(self._all_workers.answering())
        await listeners.open(self._stack)
        self._announce_console(listeners)
        await self._dispatcher.tasks.runner.recover()
        self._listeners = listeners
        self._live.listeners = listeners.http
        await self._stack.enter_async_context(self._reloading())
        await self._stack.enter_async_context(self._service_manager.watched())
        self._health.become_ready()
        self._service_manager.ready(self._summary())
        if self._worker is not None:
            await self._stack.enter_async_context(self._worker.supervised(on_loss=self._stop_wanted.set))

    async def stop(self) -> None:
        """Stop being ready, accept nothing new, end streams, and wait `drain_timeout` for calls in flight."""
        log.info("stopping")
        self._health.begin_stopping()
        self._service_manager.stopping()
        if self._console_parts is not None:
            self._console_parts.drain()
        seconds = self._settings.drain_timeout.total_seconds()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dispatcher.tasks.runner.drain(seconds))
            if self._listeners is not None:
                group.create_task(self._listeners.drain(seconds))

    def memory_client(self) -> MemoryClient:
        """A client of the newest revision in this process, without a listener, at the view of the settings.

        Raises:
            ConfigError: there is no such view.
        """
        check_view(self._settings.view, self._live.served.document.views)
        return MemoryClient(self._dispatcher, view=self._settings.view)

    def status(self) -> JsonObject:
        """The answer of `/-/status`."""
        return self._health.status()

    async def manifest(self) -> Manifest:
        """The manifest of what is served, made in a thread: a thousand tools take a while."""
        served = self._live.served
        return await asyncio.to_thread(manifest, served.document, served.catalog)

    @property
    def apps(self) -> Mapping[str, Path]:
        """The file of each page that is served for a tool (`app`), by the tool's name."""
        resources = self._live.served.catalog.resources.values()
        return {
            each.definition["name"]: Path(each.executor.path)
            for each in resources
            if each.definition.get("mimeType") == APP_MEDIA_TYPE and isinstance(each.executor, SingleFile)
        }

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems that keep the files from being served as they are."""
        return self._reloader.status.problems

    @property
    def url(self) -> str | None:
        """The URL of the MCP endpoint; None if HTTP is not served."""
        return None if self._listeners is None else self._listeners.http.url

    @property
    def http_address(self) -> Address | None:
        """The address of the HTTP listener, with its port; None if there is none."""
        return None if self._listeners is None else self._listeners.http.address

    async def _prepare(self, stack: AsyncExitStack) -> None:
        logs = Logs(level=self._settings.log_level, style=self._settings.log_format, mask=self._mask)
        self._logs = stack.enter_context(logs)
        self._shared_keys = given_keys = self._given_keys()
        loaded_at = time.time_ns()
        with gc_paused():
            loaded = load(self._settings.config)
        tracing = open_tracing(os.environ)
        if tracing is not None:
            stack.push_async_callback(tracing.close)
        state_dir = directory_of(self._settings.state_dir, config=self._settings.config, environ=os.environ)
        if self._worker is not None:
            state_dir = self._worker.state_dir(state_dir)
        store = self._settings.store_url()
        if store is not None:
            _require_shared_keys(given_keys)
        self._state = await stack.enter_async_context(State(state_dir, keys=given_keys, schemas=[TASKS], store=store))
        self._services = await stack.enter_async_context(running_services(threads=loaded.document.limits.threads))
        await self._services.output_store.use(self._state.outputs)
        self._auditing = auditing = AuditRecorder(
            key=self._state.keys()[0], generation=lambda: self._live.store.current.generation
        )
        self._authenticator = Authenticator(JsonFetcher(self._services.http), on_denied=auditing.denied)
        stack.push_async_callback(self._authenticator.close)
        self._upstreams = upstreams = Upstreams(
            services=self._services,
            documents=self._state.documents,
            updated=self._resource_updated,
            waits_for_first_lists=self._serves_one_request,
        )
        stack.push_async_callback(upstreams.close)
        self._documents = documents = openapi_documents(services=self._services, documents=self._state.documents)
        stack.push_async_callback(documents.close)
        self._pipeline = pipeline = ReloadPipeline(
            self._settings.config,
            sources=[upstreams, documents],
            services=self._services,
            authenticator=self._authenticator,
            audit=auditing,
            grace=self._settings.drain_timeout,
            keeps_places=self._opens_console or loaded.document.listen.console is not None,
        )
        stack.push_async_callback(pipeline.close)
        await pipeline.open(loaded)
        self._dispatcher = Dispatcher(
            store=pipeline.store,
            services=self._services,
            keys=self._state.keys,
            used_states=self._state.used_states,
            max_depth=loaded.document.limits.request_depth,
            observers=[*self._observers, self._call_metrics, self._recent_clients, auditing],
            observers_of_all=[*([] if tracing is None else [tracing]), *self._recording()],
            interaction_observer=auditing,
            trace=untraced if tracing is None else tracing.trace,
            tasks=(task_store := open_task_store(self._state)),
            clock=self._state.clock,
        )
        stack.push_async_callback(self._dispatcher.tasks.runner.close)
        if self._state.replica is not None:
            replica, catalogs, notifier = self._state.replica, pipeline.store, self._dispatcher.notifier
            self._dispatcher.rates.shared = replica.rates
            self._dispatcher.concurrency.share(replica.places)
            for shared in (SharedChanges, CatalogAgreement):
                await stack.enter_async_context(shared(replica, store=catalogs, notifier=notifier))
        self._dispatcher.tasks.runner.observers.append(auditing)
        await self._dispatcher.tasks.runner.load()
        if isinstance(task_store, RedisTaskStore):
            told = self._dispatcher.task_notifications.task_changed
            await stack.enter_async_context(Leases(self._dispatcher.tasks.runner, task_store, told=told))
        self._dispatcher.notifier.watch_changed = self._watch_upstreams
        self._dispatcher.notifier.roots_changed = upstreams.roots_changed
        self._dispatcher.notifier.session_ended = upstreams.session_ended
        pipeline.store.subscribe(lambda _, catalog: self._call_metrics.keep(names(catalog)))
        pipeline.store.subscribe(lambda _, catalog: self._services.databases.keep(catalog.databases))
        self._reloader = Reloader(pipeline, poll=self._settings.poll, loaded_at=loaded_at)
        stack.push_async_callback(self._reloader.close)
        self._health = Health(
            sources(self._components(), config=self._settings.config, recent_clients=self._recent_clients),
            missing=lambda: upstreams.unready,
            warnings=lambda: self._state.warnings,
        )
        catalog = pipeline.store.current
        log.info("loaded", config=str(self._settings.config), tools=len(catalog.tools), prompts=len(catalog.prompts))

    def _watch_upstreams(self) -> None:
        """Have upstreams tell of updates of what our clients watch there."""
        catalog = self._live.store.current
        found = (self._upstreams.origin_of(catalog, uri) for uri in self._dispatcher.notifier.watched)
        self._upstreams.watch([origin for origin in found if origin is not None])

    def _resource_updated(self, uri: str) -> None:
        """Tell subscribers of what an upstream says."""
        catalog = self._live.store.current
        self._dispatcher.notifier.resource_updated(uri, catalog)
        origin = self._upstreams.origin_of(catalog, uri)
        if origin is not None and self._live.served.document.upstreams[origin[0]].command is not None:
            # Every replica has a process of its own, and its calls change what that one has.
            self._dispatcher.notifier.tell_others("updated", "resources", uri)

    def _given_keys(self) -> SigningKeys | None:
        keys = self._settings.signing_keys()
        if any(len(key) < MIN_KEY_LENGTH for key in keys):
            log.warning("the signing key can be guessed", variable=variable_of("secret_key"), shortest=MIN_KEY_LENGTH)
        return SigningKeys(keys, file=self._settings.secret_key_file) if keys else None

    @asynccontextmanager
    async def _reloading(self) -> AsyncIterator[None]:
        """Reload on SIGHUP and, unless `no_watch` is set, when a file changes; for as long as the context lasts."""
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[object]] = set()

        def begin(work: Coroutine[Json, Json, object], name: str) -> None:
            task = loop.create_task(work, name=name)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        def sighup() -> None:
            begin(self._sighup(), "reload on SIGHUP")

        begin(self._reloader.run_for_sources(), "reload for sources")
        if not self._settings.no_watch:
            begin(self._reloader.run(), "watch files")
        try:
            with on_sighup(sighup):
                yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _http_server(self, served: Candidate) -> HttpServer:
        document = served.document
        metrics, worker = self._metrics(), self._worker
        if worker is not None:
            self._all_workers = import_module(_ALL_WORKERS).AllWorkers(
                worker, health=self._health, metrics=metrics, logs=self._logs, reload=self._sighup
            )
        workers = self._all_workers
        self._console = self._make_console()
        return HttpServer(
            document.listen,
            ServerLimits.of(document.listen, document.limits),
            dispatcher=self._dispatcher,
            authenticator=self._authenticator,
            admin_api=AdminApi(
                health=self._health,
                metrics=workers or metrics,
                logs=self._logs,
                reload=self._reload if workers is None else partial(workers.reload, self._reload),
                config=self._config,
                tasks=TaskReport(
                    self._dispatcher.tasks.runner,
                    mask=self._mask,
                    progress=None if self._console_parts is None else self._console_parts.task_progress.shown,
                ),
                about=partial(about, self._components(), has_console=self._console is not None),
                workers=workers,
                console=self._console,
            ),
            tls=self._live.tls,
            is_draining=lambda: self._health.is_stopping,
            mask=self._mask,
            persistence=SessionPersistence(
                keys=self._state.keys,
                store=self._state.sessions,
                clock=self._state.clock,
                replica=self._state.replica,
            ),
        )

    @property
    def _console_page(self) -> ConsolePage | None:
        """The console as the file has it; None where it is not served."""
        page = self._live.first.listen.console
        return ConsolePage() if page is None and self._opens_console else page

    def _recording(self) -> Sequence[Observer]:
        """Make the console's part where the console is served, and return what records calls for it."""
        if self._console_page is None:
            return ()
        number = 0 if self._worker is None else self._worker.number
        self._console_parts = import_module(_CONSOLE).ConsoleParts(worker=number)
        return self._console_parts.observers

    def _make_console(self) -> "Console | None":
        page = self._console_page
        if self._console_parts is None or page is None:
            return None
        self._stack.push_async_callback(self._console_parts.close)
        if self._all_workers is not None:
            self._all_workers.console = self._console_parts.answer
        return self._console_parts.console(
            page,
            self._components(),
            shared_keys=self._shared_keys,
            health=self._health,
            logs=self._logs,
            status=self._status_of_all,
            others=self._all_workers,
        )

    async def _status_of_all(self) -> JsonObject:
        """The answer of `/-/api/status`: of all workers, where there are several."""
        own = self.status()
        return own if self._all_workers is None else await self._all_workers.status(own)

    def _announce_console(self, listeners: Listeners) -> None:
        """Log the link to the console. Of several workers one does: the others would log the same."""
        if self._console is None or listeners.http.own_url is None or (self._worker and self._worker.number):
            return
        self.console_link = self._console.link(self._live.first.listen.public_url or listeners.http.own_url)
        log.info("console", url=self.console_link)

    def _components(self) -> Components:
        return Components(
            pipeline=self._live,
            reloader=self._reloader,
            dispatcher=self._dispatcher,
            services=self._services,
            authenticator=self._authenticator,
            auditing=self._auditing,
            state=self._state,
            upstreams=self._upstreams,
            documents=self._documents,
            listeners=lambda: self._listeners,
        )

    def _metrics(self) -> MetricsExposition:
        sources = metric_sources(self._components(), health=self._health, calls=self._call_metrics)
        return MetricsExposition(sources, counted=[self._call_metrics, UpstreamMetrics(self._upstreams)])

    async def _sighup(self) -> JsonObject:
        """Reopen the audit log, as log rotation expects of SIGHUP (logrotate(8)), and reload the files."""
        self._auditing.reopen()
        return await self._reload(trigger=Trigger.SIGNAL)

    async def _config(self) -> JsonObject:
        return (await self.manifest()).as_json()

    async def _reload(self, *, trigger: Trigger = Trigger.REQUEST) -> JsonObject:
        self._service_manager.reloading()
        status = await self._reloader.reload(trigger=trigger)
        self._service_manager.ready(self._summary())
        return {
            "generation": self._live.store.current.generation,
            "problems": [str(problem) for problem in status.problems],
        }

    def _summary(self) -> str:
        """The state in one line, for the service manager."""
        problems = len(self._reloader.status.problems)
        if problems:
            return f"Serving the last good configuration: {problems} problems keep the newer one from being served"
        catalog = self._live.store.current
        return f"Serving {len(catalog.tools)} tools, generation {catalog.generation}"

    @property
    def _is_activated(self) -> bool:
        """Whether the service manager holds the sockets of the main listener."""
        return bool(self._inherited.get("")) and (self._worker is None or self._worker.is_activated)

    @property
    def _live(self) -> ReloadPipeline:
        """The reload pipeline, once it is open."""
        if self._pipeline is None:
            raise RuntimeError("not entered")
        return self._pipeline

    def _mask(self, text: str) -> str:
        return text if self._pipeline is None else self._pipeline.redactor.text(text)


def _require_shared_keys(keys: SigningKeys | None) -> None:
    """Refuse a store without keys that all replicas have: what one of them signs must be good at the others.

    Raises:
        ConfigError: there are none.
    """
    if keys is None:
        problem = f"replicas must share their signing keys: set {variable_of('secret_key')} or …_FILE for all of them"
        raise ConfigError([Problem(message=problem, path=variable_of("store"))])


def take_sockets() -> Inherited:
    """Take the sockets that the service manager hands over.

    Raises:
        ConfigError: one cannot be listened on.
    """
    try:
        return take_inherited(os.environ)
    except InheritedError as error:
        raise ConfigError([Problem(message=str(error), path="LISTEN_FDS")]) from error
