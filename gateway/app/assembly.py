"""Makes the components of a daemon, from the state directory up, and tells each what it has to know of the others.

The order is that of need: state, services, sources, catalog, dispatcher. Each is closed with the stack that it was
entered on, so that they end in the opposite order.
"""

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from gateway.access.authenticator import Authenticator
from gateway.app.catalog_agreement import CatalogAgreement, ListDiffered, ReplicasAgreed
from gateway.app.client_counts import RecentClients
from gateway.app.components import Components
from gateway.app.shared_changes import SharedChanges
from gateway.app.workers.worker import Worker
from gateway.audit.recorder import AuditRecorder
from gateway.catalog.catalog import Catalog
from gateway.catalog.search_tools import OWN_NAMES
from gateway.config.loader import LoadedConfig
from gateway.config.settings import Settings, variable_of
from gateway.events import Events, UpstreamResourceUpdated, WatchedResourcesChanged
from gateway.executors.shared_services import running_services
from gateway.net.json_fetcher import fetch_json, issuer_sender
from gateway.openapi.remote_documents import RemoteDocuments
from gateway.openapi.source import OpenApiSource
from gateway.protocol.dispatcher import Dispatcher
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.reloader import Reloader
from gateway.state.keys import SigningKeys, warn_of_short, warn_of_unshared
from gateway.state.state import DaemonState, directory_of
from gateway.tasks.leases import Leases
from gateway.tasks.redis_store import RedisTaskStore
from gateway.tasks.runner import TaskCancelled, TaskChanged
from gateway.tasks.sqlite_store import TASKS, open_task_store
from gateway.tasks.task import decode_memory
from gateway.telemetry.call_metrics import CallMetrics
from gateway.telemetry.logs import Logs
from gateway.telemetry.observer import Observer
from gateway.telemetry.trace import untraced
from gateway.telemetry.tracing import open_tracing
from gateway.upstreams.source import FIRST_LISTS_SECONDS, UpstreamSource


async def assembled(  # noqa: PLR0913 - what the daemon was asked for
    stack: AsyncExitStack,
    settings: Settings,
    loaded: LoadedConfig,
    *,
    logs: Logs,
    loaded_at: int,
    keys: SigningKeys | None,
    observers: Sequence[Observer],
    recorders: Sequence[Observer],
    worker: Worker | None,
    serves_one_request: bool,
    keeps_places: bool,
) -> Components:
    """Make all components, compile the file, and start what must run before anybody is served.

    Args:
        stack: closes them.
        settings: flags and environment variables of the process.
        loaded: the file.
        logs: told what is secret as soon as the file says so.
        loaded_at: the time before it was read, in nanoseconds: changes since then are a reason to reload.
        keys: the signing keys of the settings, or of the supervisor.
        observers: called for each call.
        recorders: called for each request, as the console's records are.
        worker: the part of this process, if it is one of several workers.
        serves_one_request: see `Gateway`.
        keeps_places: remember where definitions stand in the files, which the console shows.

    Raises:
        ConfigError: the file cannot be served; it has every problem.
    """
    tracing = open_tracing(os.environ)
    if tracing is not None:
        stack.push_async_callback(tracing.close)
    state = await stack.enter_async_context(_state(settings, keys, worker))
    services = await stack.enter_async_context(running_services(threads=loaded.document.limits.threads))
    # Outputs of tasks outlive the process as the tasks do, which are begun again below.
    await services.output_store.use(state.outputs)
    auditing = AuditRecorder(key=state.keys()[0], generation=lambda: pipeline.store.current.generation)
    authenticator = Authenticator(partial(fetch_json, issuer_sender(services.http)), on_denied=auditing.denied)
    stack.push_async_callback(authenticator.close)
    events = Events()
    upstreams = UpstreamSource(
        services=services,
        documents=state.documents,
        events=events,
        first_lists_seconds=None if serves_one_request else FIRST_LISTS_SECONDS,
        mailbox=None if state.replica is None else state.replica.mailbox,
    )
    stack.push_async_callback(upstreams.close)
    documents = OpenApiSource(RemoteDocuments(services=services, documents=state.documents))
    stack.push_async_callback(documents.close)
    pipeline = ReloadPipeline(
        settings.config,
        sources=[upstreams, documents],
        services=services,
        authenticator=authenticator,
        audit=auditing,
        grace=settings.drain_timeout,
        keeps_places=keeps_places,
    )
    stack.push_async_callback(pipeline.close)
    # Before the file is compiled: what is logged of that may hold its secrets.
    logs.mask = partial(_masked, pipeline)
    await pipeline.open(loaded)
    call_metrics, recent_clients = CallMetrics(), RecentClients()
    task_store = open_task_store(state)
    replica = state.replica
    agreement = None if replica is None else CatalogAgreement(replica, store=pipeline.store, events=events)
    dispatcher = Dispatcher(
        store=pipeline.store,
        services=services,
        keys=state.keys,
        used_states=state.used_states,
        max_depth=loaded.document.limits.request_depth,
        observers=[*observers, call_metrics, recent_clients, auditing],
        observers_of_all=[*([] if tracing is None else [tracing]), *recorders],
        interaction_observer=auditing,
        trace=untraced if tracing is None else tracing.trace,
        tasks=task_store,
        clock=state.clock,
        events=events,
        agreement=agreement,
        upstreams_watch=upstreams.watching,
        shared_rates=None if replica is None else replica.rates,
        semaphores=None if replica is None else replica.semaphores,
    )
    stack.push_async_callback(dispatcher.tasks.close)
    reloader = Reloader(pipeline, poll=settings.poll, loaded_at=loaded_at, events=events)
    components = Components(
        events=events,
        pipeline=pipeline,
        reloader=reloader,
        dispatcher=dispatcher,
        services=services,
        authenticator=authenticator,
        auditing=auditing,
        state=state,
        upstreams=upstreams,
        documents=documents,
        call_metrics=call_metrics,
        recent_clients=recent_clients,
    )
    if replica is not None and agreement is not None:
        changes = SharedChanges(replica, store=pipeline.store, notifier=dispatcher.notifier, events=events)
        await stack.enter_async_context(changes)
        await stack.enter_async_context(agreement)
    _subscribe(components)
    # Before listeners open: a client that comes back at once finds its task.
    await dispatcher.tasks.load()
    if isinstance(task_store, RedisTaskStore):
        told = dispatcher.task_notifications.task_changed
        await stack.enter_async_context(Leases(dispatcher.tasks, task_store, told=told))
    # At each swap: labels of what is gone must not pile up.
    pipeline.store.subscribe(lambda _, catalog: call_metrics.keep(_counted_names(catalog)))
    pipeline.store.subscribe(lambda _, catalog: services.databases.keep(catalog.databases))
    # Closed before all of the above: no reload begins while the rest ends.
    stack.push_async_callback(reloader.close)
    return components


def _counted_names(catalog: Catalog) -> dict[str, frozenset[str]]:
    """The names under which calls are counted, by kind: what the catalog does not have must not become a label."""
    prompts = frozenset(catalog.prompts)
    own = OWN_NAMES if catalog.searches else ()
    resources = frozenset(each.name for each in (*catalog.resources.values(), *catalog.resource_templates))
    return {
        "tool": frozenset((*catalog.tools, *own)),
        "resource": resources,
        "prompt": prompts,
        "completion": prompts | resources,
    }


def given_keys(settings: Settings, worker: Worker | None) -> SigningKeys | None:
    """Return the signing keys of the settings or the supervisor, if there are any; warn of one that can be guessed."""
    keys = settings.signing_keys()
    if worker is not None and not keys:
        return worker.signing_keys()
    warn_of_short(keys, variable=variable_of("secret_key"))
    return SigningKeys(keys, file=settings.secret_key_file) if keys else None


def _state(settings: Settings, keys: SigningKeys | None, worker: Worker | None) -> DaemonState:
    directory = directory_of(settings.state_dir, config=settings.config, environ=os.environ)
    store = settings.store_url()
    if store is not None and keys is None:  # what one replica signs must be good at the others
        warn_of_unshared(variable=variable_of("secret_key"))
    return DaemonState(
        directory if worker is None else worker.state_dir(directory), keys=keys, schemas=[TASKS], store=store
    )


def _masked(pipeline: ReloadPipeline, text: str) -> str:
    """Mask the secrets of now: a reload may bring others."""
    return pipeline.redactor.text(text)


def _subscribe(components: Components) -> None:
    """Connect rooms that may not import each other."""
    events, notifier = components.events, components.dispatcher.notifier
    events.subscribe(WatchedResourcesChanged, lambda _: _watch_upstreams(components))
    events.subscribe(UpstreamResourceUpdated, lambda event: _resource_updated(components, event.uri))
    events.subscribe(ReplicasAgreed, lambda _: notifier.announce_held())
    events.subscribe(ListDiffered, lambda event: notifier.list_changed(event.kind))
    events.subscribe(TaskChanged, lambda event: components.auditing.task_changed(event.task))
    parked = components.upstreams.parked
    events.subscribe(TaskCancelled, lambda event: parked.give_up(decode_memory(event.task.memory).results))


def _watch_upstreams(components: Components) -> None:
    """Have upstreams tell of updates of what our clients watch there."""
    if not components.upstreams.servers:
        return  # else each subscription would look up everything that is watched
    catalog = components.pipeline.store.current
    found = (components.upstreams.origin_of(catalog, uri) for uri in components.dispatcher.notifier.watched)
    components.upstreams.watch([origin for origin in found if origin is not None])


def _resource_updated(components: Components, uri: str) -> None:
    """Tell subscribers of what an upstream says."""
    catalog, notifier = components.pipeline.store.current, components.dispatcher.notifier
    notifier.resource_updated(uri, catalog)
    origin = components.upstreams.origin_of(catalog, uri)
    if origin is not None and components.pipeline.served.document.upstreams[origin[0]].command is not None:
        # Every replica has a process of its own, and its calls change what that one has.
        notifier.tell_others("updated", "resources", uri)
