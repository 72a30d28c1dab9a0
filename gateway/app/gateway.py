"""The gateway: one file in, MCP out. Starts the rooms in their order, and ends them in the opposite one.

Everything that can fail comes first: the file is loaded and compiled before a socket is opened. Everything that ends is
bounded: calls in flight have `drain_timeout`, then they are cancelled, and what ignores even that is left behind.
"""

import asyncio
import os
import secrets
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Final, Self

import structlog

from gateway.access.authenticator import Authenticator
from gateway.app.documents import Documents
from gateway.app.listening.listeners import Listeners
from gateway.app.listening.premises import Premises
from gateway.app.offer import Build, Offer
from gateway.app.process.pauses import favour_the_loop
from gateway.app.process.service_manager import ServiceManager
from gateway.app.process.shutdown import LastResort, StopSignals
from gateway.app.reports.auditing import Auditing
from gateway.app.reports.clients import RecentClients
from gateway.app.reports.measures import measures, names
from gateway.app.reports.parts import Parts
from gateway.app.reports.picture import Picture, draw
from gateway.app.reports.status import sources
from gateway.config.address import Address
from gateway.config.loader import load
from gateway.config.settings import SHORTEST_KEY, Settings, variable_of
from gateway.errors import ConfigError, Problem
from gateway.executors.services import Services, running_services
from gateway.executors.trace import untraced
from gateway.json_types import Json, JsonObject
from gateway.protocol.calls import Observer
from gateway.protocol.dispatcher import Dispatcher
from gateway.reloader.reloader import Reloader
from gateway.telemetry.call_metrics import CallMetrics
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import open_tracing
from gateway.transports.listener.inherited_sockets import Inherited, InheritedError, take_inherited
from gateway.transports.memory import MemoryClient
from gateway.transports.own_paths import OwnPaths
from gateway.transports.stdio.standard_streams import StandardStreams

log: Final = structlog.get_logger()

CLEAN_UP_SECONDS: Final = 10.0
"""How long the process may take to end once its calls were cancelled: children get TERM, later KILL."""
LEAVE_SECONDS: Final = 1.0
"""How long, all else being closed, tasks and threads that a plugin left may hold the process."""
_KEY_BYTES: Final = 32


class Gateway:
    """One daemon. Entering it loads and compiles; `serve` listens, and returns when it was told to stop."""

    def __init__(self, settings: Settings, *, observers: Sequence[Observer] = ()) -> None:
        """Do nothing yet; the observers are told of each call."""
        self._settings: Final = settings
        self._observers: Final = tuple(observers)
        self._stack: Final = AsyncExitStack()
        self._stop_wanted: Final = asyncio.Event()
        self._standard_streams: StandardStreams | None = None
        self._inherited: Inherited = {}
        self._service_manager: Final = ServiceManager(os.environ)
        self._listeners: Listeners | None = None
        self._last_resort: LastResort | None = None
        self._call_metrics: Final = CallMetrics()
        self._recent_clients: Final = RecentClients()
        self._offer: Offer | None = None
        self._health: Health
        self._authenticator: Authenticator
        self._services: Services
        self._logs: Logs
        self._dispatcher: Dispatcher
        self._reloader: Reloader[Build]
        self._auditing: Auditing

    async def __aenter__(self) -> Self:
        """Load the file, and make everything ready to answer.

        Raises:
            ConfigError: the file cannot be served; it has every problem.
        """
        if self._settings.stdio:
            self._standard_streams = StandardStreams.take()  # before plugins are imported, which may print
        self._inherited = _take_inherited()  # before plugins are imported, whose children would hold them open
        async with AsyncExitStack() as stack:
            await self._prepare(stack)
            self._stack.push_async_callback(stack.pop_all().aclose)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        if self._last_resort is not None:
            exit_code = 0 if error is None else 2 if isinstance(error, ConfigError) else 1
            self._last_resort.arm(seconds=LEAVE_SECONDS, exit_code=exit_code)

    async def serve(self, *, on_leave: Callable[[], None] = lambda: None) -> None:
        """Listen until SIGINT, SIGTERM or the end of standard input; then let the calls in flight finish.

        For the process's own sake alone: from the first signal on it will end, whatever hangs. `on_leave` is called,
        from any thread, where it ends without further ado.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        seconds = self._settings.drain_timeout.total_seconds() + CLEAN_UP_SECONDS

        def leave() -> None:
            self._services.processes.kill_all()
            on_leave()

        self._last_resort = last_resort = LastResort(on_leave=leave)
        last_resort.start()
        favour_the_loop()
        with StopSignals(on_stop=self._stop_wanted.set, last_resort=last_resort, seconds=seconds):
            await self.start()
            await self._stop_wanted.wait()
            last_resort.arm(seconds=seconds)
            await self.stop()

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            ConfigError: the address cannot be listened on, or must not be without authentication.
        """
        served = self._offered.served
        self._auditing.open(served)
        self._stack.callback(self._auditing.close)
        listeners = Listeners(
            self._premises(served),
            dispatcher=self._dispatcher,
            health=self._health,
            standard_streams=self._standard_streams,
            on_input_end=self._stop_wanted.set,
        )
        await listeners.open(self._stack)
        self._listeners = listeners
        await self._stack.enter_async_context(self._following_the_files())
        await self._stack.enter_async_context(self._service_manager.watched())
        self._health.become_ready()
        self._service_manager.ready(self._summary())

    async def stop(self) -> None:
        """Be unready, accept nothing new, end the streams, and give the calls in flight their time."""
        log.info("stopping")
        self._health.begin_stopping()
        self._service_manager.stopping()
        if self._listeners is not None:
            await self._listeners.drain(self._settings.drain_timeout.total_seconds())

    def memory_client(self) -> MemoryClient:
        """A client of the newest revision, in this process."""
        return MemoryClient(self._dispatcher)

    def status(self) -> JsonObject:
        """What `/-/status` says."""
        return self._health.status()

    async def picture(self) -> Picture:
        """What is served, and to whom, as it may be shown. Drawn in a thread: a thousand tools take a moment."""
        served = self._offered.served
        return await asyncio.to_thread(draw, served.document, served.catalog)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What keeps the files from being served as they are."""
        return self._reloader.status.problems

    @property
    def url(self) -> str | None:
        """The MCP endpoint, where HTTP is served."""
        return None if self._listeners is None else self._listeners.url

    @property
    def http_address(self) -> Address | None:
        """Where HTTP is served, with the port that it got."""
        return None if self._listeners is None else self._listeners.http_address

    async def _prepare(self, stack: AsyncExitStack) -> None:
        logs = Logs(level=self._settings.log_level, style=self._settings.log_format, mask=self._mask)
        self._logs = stack.enter_context(logs)
        key = self._signing_key()
        loaded_at = time.time_ns()
        loaded = load(self._settings.config)
        tracing = open_tracing(os.environ)
        if tracing is not None:
            stack.push_async_callback(tracing.close)
        self._services = await stack.enter_async_context(running_services(threads=loaded.document.limits.threads))
        self._offer = offer = Offer(
            self._settings.config,
            redactor=loaded.redactor,
            services=self._services,
            grace=self._settings.drain_timeout,
            is_reachable=lambda: self._listeners is not None and self._listeners.are_reachable,
        )
        stack.push_async_callback(offer.close)
        await offer.open(loaded)
        self._auditing = auditing = Auditing(key=key, whole=lambda: offer.store.current)
        self._authenticator = Authenticator(Documents(self._services.http), on_denied=auditing.denied)
        stack.push_async_callback(self._authenticator.close)
        self._authenticator.adopt(loaded.document.auth)
        self._dispatcher = Dispatcher(
            store=offer.store,
            services=self._services,
            secret_key=key,
            observers=[*self._observers, self._call_metrics, self._recent_clients, auditing],
            observers_of_all=[] if tracing is None else [tracing],
            witness=auditing,
            trace=untraced if tracing is None else tracing.trace,
        )
        offer.store.subscribe(lambda _, catalog: self._call_metrics.keep(names(catalog)))
        self._reloader = Reloader(
            build=self._build, apply=self._serve, plan=offer.plan, poll=self._settings.poll, loaded_at=loaded_at
        )
        stack.push_async_callback(self._reloader.close)
        self._health = Health(sources(self._parts(), config=self._settings.config, recent_clients=self._recent_clients))
        catalog = offer.store.current
        log.info("loaded", config=str(self._settings.config), tools=len(catalog.tools), prompts=len(catalog.prompts))

    def _signing_key(self) -> bytes:
        key = self._settings.signing_key()
        if key is not None and len(key) < SHORTEST_KEY:
            log.warning("the signing key can be guessed", variable=variable_of("secret_key"), shortest=SHORTEST_KEY)
        return key or secrets.token_bytes(_KEY_BYTES)

    @asynccontextmanager
    async def _following_the_files(self) -> AsyncIterator[None]:
        """Reload on SIGHUP, and unless told otherwise whenever a file changes."""
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[object]] = set()

        def begin(work: Coroutine[Json, Json, object], name: str) -> None:
            task = loop.create_task(work, name=name)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGHUP, lambda: begin(self._hang_up(), "reload on SIGHUP"))
        if not self._settings.no_watch:
            begin(self._reloader.run(), "watch files")
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _premises(self, served: Build) -> Premises:
        return Premises(
            settings=self._settings,
            document=served.document,
            exposures=served.exposures,
            authenticator=self._authenticator,
            own=OwnPaths(
                health=self._health,
                metrics=self._metrics(),
                logs=self._logs,
                reload=self._reload,
                config=self._config,
            ),
            mask=self._mask,
            inherited=self._inherited,
            tls=self._offered.tls,
        )

    def _parts(self) -> Parts:
        return Parts(
            offer=self._offered,
            reloader=self._reloader,
            dispatcher=self._dispatcher,
            services=self._services,
            authenticator=self._authenticator,
            auditing=self._auditing,
            listeners=lambda: self._listeners,
        )

    def _metrics(self) -> Metrics:
        sources = measures(self._parts(), health=self._health, calls=self._call_metrics)
        return Metrics(sources, counted=[self._call_metrics])

    async def _hang_up(self) -> None:
        """What daemons do on SIGHUP: open the logs anew, and take up what is on disk."""
        self._auditing.reopen()
        await self._reload()

    async def _build(self) -> Build:
        try:
            build = await self._offered.build()
            await asyncio.to_thread(self._auditing.check, build)
        except ConfigError as error:
            self._auditing.refuse(error)
            raise
        return build

    async def _serve(self, build: Build) -> None:
        self._authenticator.adopt(build.document.auth)
        await self._offered.serve(build)
        if self._listeners is not None:
            self._listeners.review(self._authenticator.renewed)
        self._auditing.serve(build)

    async def _config(self) -> JsonObject:
        return (await self.picture()).as_json()

    async def _reload(self) -> JsonObject:
        self._service_manager.reloading()
        status = await self._reloader.reload()
        self._service_manager.ready(self._summary())
        return {
            "generation": self._offered.store.current.generation,
            "problems": [str(problem) for problem in status.problems],
        }

    def _summary(self) -> str:
        """How it is doing, in one line."""
        problems = len(self._reloader.status.problems)
        if problems:
            return f"Serving the last good configuration: {problems} problems keep the newer one from being served"
        catalog = self._offered.store.current
        return f"Serving {len(catalog.tools)} tools, generation {catalog.generation}"

    @property
    def _offered(self) -> Offer:
        """The offer, once it is open."""
        if self._offer is None:
            raise RuntimeError("not entered")
        return self._offer

    def _mask(self, text: str) -> str:
        return text if self._offer is None else self._offer.redactor.text(text)


def _take_inherited() -> Inherited:
    try:
        return take_inherited(os.environ)
    except InheritedError as error:
        raise ConfigError([Problem(message=str(error), path="LISTEN_FDS")]) from error
