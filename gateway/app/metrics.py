"""Collects the metrics of a daemon. Most metrics are computed at each scrape."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from prometheus_client import Metric
from prometheus_client.core import HistogramMetricFamily

from gateway import __version__
from gateway.app.parts import Core
from gateway.app.status import quotas, refusals
from gateway.catalog.catalog import Catalog
from gateway.executors.shared_services import Services
from gateway.executors.sql.pools import DatabasePools
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.reloader import Reloader
from gateway.state.replica import Replica
from gateway.tasks.task import TaskStatus
from gateway.telemetry.metric_definitions import UPSTREAM_SECONDS
from gateway.telemetry.metrics import MetricsExposition, Reading, buckets
from gateway.transports.http_server import HttpServer
from gateway.upstreams.source import UpstreamSource

Sources = Mapping[str, Callable[[], Reading]]


def metrics_exposition(
    core: Core, *, http: HttpServer | None, open_sessions: Callable[[], Iterable[tuple[Binding, Session]]]
) -> MetricsExposition:
    """Return an exposition that computes the metrics in `metric_definitions.READ` at each scrape."""
    dispatcher, services, audit = core.dispatcher, core.services, core.audit
    sources: Sources = {
        "mcp_gateway_build_info": lambda: {(__version__,): 1},
        "mcp_gateway_ready": lambda: core.health.is_ready,
        "mcp_gateway_calls_in_flight": core.call_metrics.in_flight,
        **_work(services, dispatcher),
        "mcp_gateway_requests_denied_total": lambda: {
            (str(status),): count for status, count in core.authenticator.denied.items()
        },
        **_clients(dispatcher, http, open_sessions),
        **_upstreams(core.upstreams),
        **_databases(services.databases),
        **_config(core.pipeline, core.reloader),
        "mcp_gateway_view_primitives": lambda: {
            (name, *kind): count for name, part in dispatcher.views.parts() for kind, count in _counts(part).items()
        },
        "mcp_gateway_audit_records_total": lambda: audit.written,
        "mcp_gateway_audit_records_dropped_total": lambda: audit.dropped,
        "mcp_gateway_audit_failing": lambda: audit.is_failing,
        "mcp_gateway_state_durable": lambda: core.state.database.is_durable,
        **_store(core.state.replica),
        "mcp_gateway_state_faults_total": lambda: _by_label(core.state.database.connection.faults),
    }
    return MetricsExposition(sources, counted=[core.call_metrics.collect, partial(_upstream_seconds, core.upstreams)])


def _upstream_seconds(upstreams: UpstreamSource) -> Iterable[Metric]:
    """Return the request durations of each upstream server as a histogram. Callable from any thread."""
    family = HistogramMetricFamily(UPSTREAM_SECONDS.name, UPSTREAM_SECONDS.meaning, labels=UPSTREAM_SECONDS.labels)
    # Iterate over a copy, because a reload can change the dictionary during the iteration.
    for name, server in list(upstreams.servers.items()):
        family.add_metric((name,), buckets(server.pool.within), server.pool.seconds)
    return [family]


def _work(services: Services, dispatcher: Dispatcher) -> Sources:
    return {
        "mcp_gateway_calls_running": lambda: dispatcher.concurrency.running,
        "mcp_gateway_calls_waiting": lambda: dispatcher.concurrency.waiting,
        "mcp_gateway_children": lambda: {
            ("running",): services.processes.running,
            ("ending",): services.processes.ending,
        },
        "mcp_gateway_tasks": lambda: {
            # Include zeros, so that each series is continuous and rates are correct.
            (status.value,): dispatcher.tasks.store.counts.get(status, 0)
            for status in TaskStatus
        },
        "mcp_gateway_orphans": lambda: services.processes.orphans,
        "mcp_gateway_orphans_reaped_total": lambda: services.processes.orphans_reaped,
        "mcp_gateway_strays_killed_total": lambda: services.processes.orphans_killed,
        "mcp_gateway_threads_busy": lambda: services.plugin_threads_busy + services.worker_threads.busy,
        "mcp_gateway_threads_stuck": lambda: services.plugin_threads_stuck + services.worker_threads.stuck,
        "mcp_gateway_outputs_mismatched_total": lambda: services.output_counters.mismatches,
        "mcp_gateway_outputs_too_large_total": lambda: _by_label(services.output_counters.overflows),
        "mcp_gateway_outputs_parked": lambda: services.output_store.count,
    }


def _clients(
    dispatcher: Dispatcher, http: HttpServer | None, open_sessions: Callable[[], Iterable[tuple[Binding, Session]]]
) -> Sources:
    counters = dispatcher.notifier.counters
    return {
        "mcp_gateway_limit_refusals_total": lambda: _by_label(refusals(dispatcher, http)),
        "mcp_gateway_limit_used": lambda: _by_label({name: len(quota) for name, quota in quotas(http).items()}),
        "mcp_gateway_limit_max": lambda: _by_label({name: quota.in_all for name, quota in quotas(http).items()}),
        "mcp_gateway_sessions": lambda: Counter(
            (binding.value, session.revision) for binding, session in open_sessions()
        ),
        "mcp_gateway_sessions_restored_total": lambda: 0 if http is None else http.sessions.restored,
        "mcp_gateway_streams": lambda: 0 if http is None else len(http.limits.streams),
        "mcp_gateway_notifications_sent_total": lambda: _by_label(counters.sent),
        "mcp_gateway_notifications_dropped_total": lambda: _by_label(counters.dropped),
    }


def _upstreams(upstreams: UpstreamSource) -> Sources:
    return {
        "mcp_gateway_upstream_up": lambda: {
            (name,): server.state == "up" for name, server in upstreams.servers.items()
        },
        "mcp_gateway_upstream_calls_total": lambda: {
            (name, outcome): count
            for name, server in upstreams.servers.items()
            for outcome, count in server.pool.calls.items()
        },
        "mcp_gateway_upstream_restarts_total": lambda: {
            (name,): server.pool.restarts for name, server in upstreams.servers.items()
        },
    }


def _databases(databases: DatabasePools) -> Sources:
    def of_each(fact: str) -> Reading:
        return {(name,): each[fact] for name, each in databases.status().items()}

    return {
        "mcp_gateway_database_connections": lambda: of_each("connections"),
        "mcp_gateway_database_connections_in_use": lambda: of_each("in_use"),
        "mcp_gateway_database_failures_total": lambda: _by_label(databases.failures),
    }


def _config(pipeline: ReloadPipeline, reloader: Reloader) -> Sources:
    def last_good() -> float:
        return reloader.last_good.timestamp()

    return {
        "mcp_gateway_primitives": lambda: _counts(pipeline.store.current),
        "mcp_gateway_primitives_left_out": lambda: Counter(
            (each.kind.removesuffix("s"),) for each in pipeline.store.current.left_out
        ),
        "mcp_gateway_config_info": lambda: {(pipeline.served.digest,): 1},
        "mcp_gateway_config_generation": lambda: pipeline.store.current.generation,
        "mcp_gateway_config_problems": lambda: len(reloader.status.problems),
        "mcp_gateway_config_warnings": lambda: len(pipeline.store.current.warnings),
        "mcp_gateway_config_restart_required": lambda: bool(pipeline.restart_required),
        "mcp_gateway_config_last_reload_successful": lambda: reloader.status.is_good,
        "mcp_gateway_config_last_reload_success_timestamp_seconds": last_good,
        "mcp_gateway_config_reloads_total": lambda: {
            ("success",): reloader.succeeded,
            ("failure",): reloader.refused,
        },
        "mcp_gateway_config_watch_failed": lambda: reloader.watch_error is not None,
    }


def _counts(catalog: Catalog) -> dict[tuple[str, ...], float]:
    return {
        ("tool",): len(catalog.tools),
        ("resource",): len(catalog.resources),
        ("resource_template",): len(catalog.resource_templates),
        ("prompt",): len(catalog.prompts),
        ("skill",): len(catalog.skills),
    }


def _store(replica: Replica | None) -> Sources:
    # Return no samples without a store, because zeros would look like an outage.
    def read(value: Callable[[Replica], Reading]) -> Callable[[], Reading]:
        return lambda: {} if replica is None else value(replica)

    return {
        "mcp_gateway_store_up": read(lambda each: {(): not each.store.is_unavailable}),
        "mcp_gateway_store_operations_total": read(lambda each: {(): each.store.operations}),
        "mcp_gateway_store_seconds_total": read(lambda each: {(): each.store.seconds}),
        "mcp_gateway_store_faults_total": read(lambda each: _by_label(each.store.faults)),
        "mcp_gateway_store_messages_total": read(
            lambda each: {("sent",): each.mailbox.sent, ("received",): each.mailbox.received}
        ),
    }


def _by_label(counts: Mapping[str, int]) -> Reading:
    return {(label,): count for label, count in counts.items()}
