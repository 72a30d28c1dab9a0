"""Creates the objects of a daemon, and connects them."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import structlog
from aiohttp import web
from msgspec.structs import replace

from gateway.access.authenticator import Authenticator
from gateway.access.identity import OPERATORS
from gateway.app.listeners import is_exposed, open_sessions
from gateway.app.metrics import metrics_exposition
from gateway.app.parts import App, Core
from gateway.app.reload_requests import ReloadRequests
from gateway.app.replicas import AnnouncementsDue, CatalogAgreement, SharedChanges, announce
from gateway.app.status import daemon_info, endpoint_url, read_status
from gateway.app.systemd_notify import ServiceManager
from gateway.app.task_report import TaskReport
from gateway.app.workers.all_workers import AllWorkers
from gateway.app.workers.worker import Worker
from gateway.audit.recorder import AuditRecorder
from gateway.background_tasks import BackgroundTasks
from gateway.catalog.catalog import Catalog
from gateway.catalog.manifest import manifest
from gateway.catalog.search_tools import OWN_NAMES
from gateway.config.loader import LoadedConfig, load
from gateway.config.models.server import ConsolePage
from gateway.config.secrets.redactor import LiveRedactor, Redactor
from gateway.config.settings import Settings, variable_of
from gateway.console.api.activity import ActivityApi
from gateway.console.api.catalog import CatalogApi
from gateway.console.api.config import ConfigApi
from gateway.console.api.mcp import McpApi
from gateway.console.api.overview import overview, snippets
from gateway.console.console import READ, Route, WebConsole
from gateway.console.console_access import ConsoleAccess, printed_token
from gateway.console.event_endpoint import EventEndpoint
from gateway.console.event_feed import EventFeed
from gateway.console.recorded_calls import RecordedCalls
from gateway.console.reload_history import ReloadHistory
from gateway.console.responses import current_problems
from gateway.console.static_files import read_static_files
from gateway.console.this_worker import AskOthers, OpenSessions, ThisWorker
from gateway.events import Events, UpstreamResourceUpdated, WatchedResourcesChanged
from gateway.executors.shared_services import Services, running_services
from gateway.json_types import Json, JsonObject
from gateway.net.server_metadata import fetch_json, issuer_sender, post
from gateway.net.token_client import TokenEndpoint
from gateway.openapi.remote_documents import RemoteDocuments
from gateway.openapi.source import OpenApiSource
from gateway.platform_facilities import missing_facilities
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.notifier import ChangeNotifier
from gateway.reload.pipeline import ReloadPipeline, gc_paused
from gateway.reload.reloader import Reloader, ReloadStatus
from gateway.signin.pages import SignInPages
from gateway.state.keys import SigningKeys, warn_of_short, warn_of_unshared
from gateway.state.state import DaemonState, directory_of
from gateway.state.used_request_states import UsedStates
from gateway.tasks.leases import Leases
from gateway.tasks.redis_store import RedisTaskStore
from gateway.tasks.runner import TaskCancelled, TaskChanged
from gateway.tasks.sqlite_store import TASKS, open_task_store
from gateway.tasks.task import decode_memory
from gateway.telemetry.health import Health
from gateway.telemetry.logs import AccessLog, Logs
from gateway.telemetry.metrics import CallMetrics
from gateway.telemetry.observer import Observer
from gateway.telemetry.trace import untraced
from gateway.telemetry.tracing import open_tracing
from gateway.transports.http.admin_api import AdminApi
from gateway.transports.http.request import HttpRequest
from gateway.transports.http_server import HttpServer, ServerLimits
from gateway.transports.listener.socket_activation import Inherited
from gateway.transports.stdio.stdio import StandardStreams, Stdio
from gateway.transports.streamable_http.sessions import SessionPersistence
from gateway.upstreams.server_spec import sign_in_keys
from gateway.upstreams.source import FIRST_LISTS_SECONDS, UpstreamSource

log: Final = structlog.get_logger(__name__)


async def build(  # noqa: PLR0913 - the inputs of the daemon
    settings: Settings,
    stack: AsyncExitStack,
    *,
    service_manager: ServiceManager,
    inherited: Inherited,
    standard_streams: StandardStreams | None,
    observers: Sequence[Observer] = (),
    worker: Worker | None = None,
    serves_one_request: bool = False,
    opens_console: bool = False,
    hidden_events: frozenset[str] = frozenset(),
) -> App:
    """Load the configuration, and start everything except the listeners. See `Gateway` for the arguments."""
    redactor, number = LiveRedactor(), 0 if worker is None else worker.number
    logs = Logs(
        level=settings.log_level,
        style=settings.log_format,
        mask=redactor.text,
        worker=None if worker is None else number,
        hidden_events=hidden_events,
    )
    stack.enter_context(logs)
    keys = _given_keys(settings, worker)
    # Take the time before reading the files, so that a change during the read triggers a reload.
    loaded_at = time.time_ns()
    with gc_paused():
        loaded = load(settings.config)
    page = loaded.document.listen.console or (ConsolePage() if opens_console else None)
    calls, feed = None, EventFeed()
    if page is not None:
        calls = RecordedCalls(worker=number)
        logs.subscribe(calls.heard)
    core = await _core(
        stack,
        settings,
        loaded,
        redactor=redactor,
        loaded_at=loaded_at,
        keys=keys,
        inherited=inherited,
        observers=observers,
        recorders=() if calls is None else (calls,),
        worker=worker,
        serves_one_request=serves_one_request,
        keeps_places=page is not None,
    )
    pipeline, dispatcher = core.pipeline, core.dispatcher
    served = pipeline.served
    http = _http_server(core) if settings.serves_http and not serves_one_request else None
    stdio = None
    if standard_streams is not None:
        stdio = Stdio(
            dispatcher=dispatcher,
            streams=standard_streams,
            max_line=served.document.listen.max_body,
            max_unread=served.document.limits.unread.per_caller,
            scopes=settings.scopes,
            view=settings.view,
        )
    sessions = partial(open_sessions, http, stdio)
    status = partial(read_status, core, http=http, open_sessions=sessions)
    metrics = metrics_exposition(core, http=http, open_sessions=sessions)

    async def own_status() -> JsonObject:
        return status()

    async def served_config() -> JsonObject:
        # Build the manifest in a thread, because this takes a while for 1,000 tools.
        served = pipeline.served
        found = await asyncio.to_thread(manifest, served.document, served.catalog, with_contracts=True)
        return found.as_json()

    reloads = ReloadRequests(reloader=core.reloader, store=pipeline.store, service_manager=service_manager)
    workers = None if worker is None else AllWorkers(worker, status=status, metrics=metrics)
    console, console_worker = None, None
    if http is not None and page is not None and calls is not None:
        console, console_worker = _console(
            stack,
            page,
            core,
            calls=calls,
            feed=feed,
            http=http,
            sessions=sessions,
            status=own_status if workers is None else workers.status,
            ask_others=_no_others if workers is None else workers.ask_console,
            shared_keys=keys,
        )
    tasks = TaskReport(dispatcher.tasks, redactor=redactor, is_for_console=console is not None)
    admin_api = AdminApi(
        health=core.health,
        status=status,
        metrics=(workers or metrics).exposition,
        logs=logs,
        reload=reloads.reload if workers is None else partial(workers.reload, reloads.reload),
        config=served_config,
        tasks=tasks,
        about=partial(daemon_info, core=core, http=http, has_console=console is not None),
        workers=workers,
        console=console,
    )
    catalog = pipeline.store.current
    log.info("loaded", config=str(settings.config), tools=len(catalog.tools), prompts=len(catalog.prompts))
    if (missing := missing_facilities()) and not number:
        log.info("facilities missing", names=[*missing])
    return App(
        core=core,
        logs=logs,
        status=status,
        metrics=metrics,
        reloads=reloads,
        http=http,
        stdio=stdio,
        admin_api=admin_api,
        console=console,
        console_feed=feed,
        console_worker=console_worker,
    )


async def _core(  # noqa: PLR0913 - the inputs of the daemon
    stack: AsyncExitStack,
    settings: Settings,
    loaded: LoadedConfig,
    *,
    redactor: LiveRedactor,
    loaded_at: int,
    keys: SigningKeys | None,
    inherited: Inherited,
    observers: Sequence[Observer],
    recorders: Sequence[Observer],
    worker: Worker | None,
    serves_one_request: bool,
    keeps_places: bool,
) -> Core:
    tracing = open_tracing(os.environ)
    if tracing is not None:
        stack.push_async_callback(tracing.close)
    state = await stack.enter_async_context(_state(settings, keys, worker))
    services = await stack.enter_async_context(running_services(threads=loaded.document.limits.threads))
    await services.output_store.use(state.outputs)
    audit = AuditRecorder(key=state.keys()[0], generation=lambda: pipeline.store.current.generation)
    to_issuers = issuer_sender(services.http)
    authenticator = Authenticator(
        partial(fetch_json, to_issuers),
        post=partial(post, to_issuers),
        key=state.keys()[0],
        used_proofs=UsedStates(clock=state.clock, shared=state.used_states.shared),
        on_denied=audit.denied,
    )
    stack.push_async_callback(authenticator.close)
    events, replica = Events(), state.replica
    services.sign_ins.open(state.encrypted, events)
    upstreams = UpstreamSource(
        services=services,
        documents=state.documents,
        events=events,
        first_lists_seconds=None if serves_one_request else FIRST_LISTS_SECONDS,
    )
    stack.push_async_callback(upstreams.close)
    documents = RemoteDocuments(services=services, documents=state.documents)
    stack.push_async_callback(documents.close)
    pipeline = ReloadPipeline(
        settings.config,
        sources=[upstreams, OpenApiSource(documents)],
        services=services,
        authenticator=authenticator,
        audit=audit,
        grace=settings.drain_timeout,
        redactor=redactor,
        is_exposed=partial(is_exposed, settings, inherited),
        keeps_places=keeps_places,
    )
    stack.push_async_callback(pipeline.close)
    await pipeline.open(loaded)
    store, call_metrics = pipeline.store, CallMetrics()
    log_calls = loaded.document.listen.access_log
    access_log = [AccessLog(logs_all=log_calls == "all")] if log_calls else []
    task_store = open_task_store(state)
    agreement = None if replica is None else CatalogAgreement(replica, store=store, events=events)
    dispatcher = Dispatcher(
        store=store,
        services=services,
        keys=state.keys,
        used_states=state.used_states,
        max_depth=loaded.document.limits.request_depth,
        observers=[*observers, *access_log, call_metrics, audit],
        observers_of_all=[*([] if tracing is None else [tracing]), *recorders],
        interaction_observer=audit,
        trace=untraced if tracing is None else lambda _: tracing,
        tasks=task_store,
        clock=state.clock,
        events=events,
        agreement=agreement,
        upstreams_watch=upstreams.watching,
        shared_rates=None if replica is None else replica.rates,
        semaphores=None if replica is None else replica.semaphores,
    )
    notifier = dispatcher.notifier
    stack.push_async_callback(dispatcher.tasks.close)
    reloader = Reloader(pipeline, poll=settings.poll, loaded_at=loaded_at, events=events)
    if replica is not None and agreement is not None:
        changes = SharedChanges(replica, store=store, notifier=notifier, events=events)
        stack.push_async_callback(changes.close)
        stack.push_async_callback(agreement.close)
    events.subscribe(WatchedResourcesChanged, lambda _: _watch_upstreams(upstreams, notifier, store.current))
    events.subscribe(UpstreamResourceUpdated, lambda event: _resource_updated(event, upstreams, notifier, pipeline))
    events.subscribe(AnnouncementsDue, lambda event: announce(event, notifier))
    events.subscribe(TaskChanged, lambda event: audit.task_changed(event.task))
    events.subscribe(TaskCancelled, lambda event: upstreams.parked.give_up(decode_memory(event.task.memory).results))
    # Forget the metrics and databases of removed definitions.
    store.subscribe(lambda _, catalog: call_metrics.keep(_counted_names(catalog)))
    store.subscribe(lambda _, catalog: services.databases.keep(catalog.databases))
    if not serves_one_request and state.is_owner:
        _sign_out_of_removed(stack, services, pipeline, events)
    # Load tasks before clients connect, because clients that reconnect at once must find their tasks.
    await dispatcher.tasks.load()
    if isinstance(task_store, RedisTaskStore):
        await stack.enter_async_context(Leases(dispatcher.tasks, task_store, task_changed=dispatcher.task_changed))
    # Push the reloader last, so that it closes first and no reload starts during the shutdown.
    stack.push_async_callback(reloader.close)
    return Core(
        settings=settings,
        redactor=redactor,
        events=events,
        state=state,
        services=services,
        authenticator=authenticator,
        audit=audit,
        upstreams=upstreams,
        documents=documents,
        pipeline=pipeline,
        reloader=reloader,
        dispatcher=dispatcher,
        call_metrics=call_metrics,
        health=Health(
            problems=lambda: redactor.json([str(problem) for problem in reloader.status.problems]),
            upstreams=lambda: redactor.json(upstreams.status()),
            missing=lambda: upstreams.unready,
            warnings=lambda: state.warnings,
        ),
    )


def _http_server(core: Core) -> HttpServer:
    document, state, authenticator = core.pipeline.served.document, core.state, core.authenticator
    http = HttpServer(
        document.listen,
        ServerLimits.of(document.listen, document.limits),
        dispatcher=core.dispatcher,
        authenticator=authenticator,
        tls=core.pipeline.tls,
        is_draining=lambda: core.health.state == "stopping",
        mask=core.redactor.text,
        persistence=SessionPersistence(keys=state.keys, store=state.sessions, clock=state.clock, replica=state.replica),
        pages=SignInPages(
            core.services.sign_ins,
            access=ConsoleAccess(
                authenticator,
                scopes=frozenset(),
                operators=OPERATORS,
                token=printed_token(),
                keys=state.keys,
                clock=state.clock,
            ),
            issuers=TokenEndpoint(
                sender=replace(issuer_sender(core.services.http), max_redirects=0), redactor=Redactor()
            ),
            served=lambda: sign_in_keys(core.pipeline.served.document),
        ),
    )

    def revalidate(status: ReloadStatus) -> None:
        if status.is_good:
            http.revalidate(authenticator.revalidate)

    core.events.subscribe(ReloadStatus, revalidate)
    return http


def _console(  # noqa: PLR0913 - the parts that the console shows
    stack: AsyncExitStack,
    page: ConsolePage,
    core: Core,
    *,
    calls: RecordedCalls,
    feed: EventFeed,
    http: HttpServer,
    sessions: OpenSessions,
    status: Callable[[], Awaitable[JsonObject]],
    ask_others: AskOthers,
    shared_keys: SigningKeys | None,
) -> tuple[WebConsole, ThisWorker]:
    pipeline, reloader, redactor, events = core.pipeline, core.reloader, core.redactor, core.events
    upstreams, views = core.upstreams, core.dispatcher.views
    history = ReloadHistory(pipeline, feed=feed, redactor=redactor)
    stack.push_async_callback(history.close)
    history.record(reloader.status)
    events.subscribe(ReloadStatus, history.record)
    own = ThisWorker(
        calls=calls,
        dispatcher=core.dispatcher,
        upstreams=upstreams,
        http=http,
        open_sessions=sessions,
        health=core.health,
        redactor=redactor,
    )
    stream = EventEndpoint(feed, own=own, ask_others=ask_others, active_requests=http.active_requests)
    stack.push_async_callback(stream.close)
    activity = ActivityApi(feed=feed, stream=stream, own=own, status=status, ask_others=ask_others)
    activity.subscribe(events)
    config = ConfigApi(pipeline, reloader, reloads=history, redactor=redactor)
    catalog = CatalogApi(config=config, pipeline=pipeline, upstreams=upstreams, redactor=redactor)
    mcp = McpApi(endpoint=http.streamable_http, store=pipeline.store, services=core.services, views=views)

    async def show_overview(request: HttpRequest) -> web.Response:
        served = pipeline.served.document
        # A separate admin listener has a different URL than the MCP endpoint.
        is_main = pipeline.first.listen.admin is None
        url = endpoint_url(pipeline.first.listen, http, request.client_endpoint.base_url if is_main else None)
        return await overview(
            request,
            status=await status(),
            rates=await activity.rates(),
            problems=current_problems(reloader, pipeline.store),
            clients=() if url is None else snippets(url, name=served.server.name, needs_key=served.auth is not None),
            counts=catalog.counts(request),
            redactor=redactor,
        )

    access = ConsoleAccess(
        core.authenticator,
        scopes=frozenset(page.scopes),
        operators=OPERATORS,
        token=printed_token(shared_keys),
        keys=core.state.keys,
        clock=core.state.clock,
    )
    routes: list[Route] = [("/overview", READ, show_overview)]
    for api in (activity, catalog, config, mcp):
        routes += api.routes()
    console = WebConsole(access=access, files=read_static_files(), routes=routes)
    return console, own


def _given_keys(settings: Settings, worker: Worker | None) -> SigningKeys | None:
    keys = settings.signing_keys()
    if worker is not None and not keys:
        return worker.signing_keys()
    warn_of_short(keys, variable=variable_of("secret_key"))
    return SigningKeys(keys, file=settings.secret_key_file) if keys else None


def _state(settings: Settings, keys: SigningKeys | None, worker: Worker | None) -> DaemonState:
    directory = directory_of(settings.state_dir, config=settings.config, environ=os.environ)
    store = settings.store_url()
    if store is not None and keys is None:
        warn_of_unshared(variable=variable_of("secret_key"))
    return DaemonState(
        directory if worker is None else worker.state_dir(directory),
        keys=keys,
        tables=[TASKS],
        store=store,
        shared_directory=directory,
    )


def _sign_out_of_removed(stack: AsyncExitStack, services: Services, pipeline: ReloadPipeline, events: Events) -> None:
    tasks = BackgroundTasks()
    stack.push_async_callback(tasks.cancel)

    def sign_out(_status: ReloadStatus | None = None) -> None:
        served = sign_in_keys(pipeline.served.document)
        tasks.begin(services.sign_ins.keep(served), name="sign out of removed services")

    events.subscribe(ReloadStatus, sign_out)
    sign_out()


def _watch_upstreams(upstreams: UpstreamSource, notifier: ChangeNotifier, catalog: Catalog) -> None:
    if not upstreams.servers:
        return
    origins = (upstreams.origin_of(catalog, uri) for uri in notifier.watched)
    upstreams.watch([origin for origin in origins if origin is not None])


def _resource_updated(
    event: UpstreamResourceUpdated, upstreams: UpstreamSource, notifier: ChangeNotifier, pipeline: ReloadPipeline
) -> None:
    catalog = pipeline.store.current
    notifier.resource_updated(event.uri)
    origin = upstreams.origin_of(catalog, event.uri)
    if origin is not None and pipeline.served.document.upstreams[origin[0]].command is not None:
        # Each replica runs a process of the stdio server, and only the process of this replica has reported the update.
        notifier.tell_others("updated", "resources", event.uri)


def _counted_names(catalog: Catalog) -> dict[str, frozenset[str]]:
    prompts = frozenset(catalog.prompts)
    own = OWN_NAMES if any(view.add_search for view in catalog.views.values()) else ()
    resources = frozenset(each.name for each in (*catalog.resources.values(), *catalog.resource_templates))
    return {
        "tool": frozenset((*catalog.tools, *own)),
        "resource": resources,
        "prompt": prompts,
        "completion": prompts | resources,
    }


async def _no_others(_method: str, _path: str) -> Sequence[Json]:
    return ()
