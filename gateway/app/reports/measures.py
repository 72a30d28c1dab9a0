"""Where the numbers come from that are read when somebody scrapes: each from whoever has it anyway."""

from collections import Counter
from collections.abc import Callable, Mapping

from gateway import __version__
from gateway.app.offer import Build, Offer
from gateway.app.reports.parts import Parts
from gateway.catalog.primitives import Catalog
from gateway.executors.services import Services
from gateway.protocol.dispatcher import Dispatcher
from gateway.reloader.reloader import Reloader
from gateway.telemetry.call_metrics import CallMetrics
from gateway.telemetry.health import Health
from gateway.telemetry.metrics import Reading

Sources = Mapping[str, Callable[[], Reading]]


def measures(parts: Parts, *, health: Health, calls: CallMetrics) -> Sources:
    """One source for each measure of `gateway.telemetry.measure.READ`."""
    return {
        "mcp_gateway_build_info": lambda: {(__version__,): 1},
        "mcp_gateway_ready": lambda: health.is_ready,
        "mcp_gateway_calls_in_flight": calls.in_flight,
        **_work(parts.services, parts.dispatcher),
        "mcp_gateway_requests_denied_total": lambda: {
            (str(status),): count for status, count in parts.authenticator.denied.items()
        },
        **_clients(parts),
        **_config(parts.offer, parts.reloader),
        "mcp_gateway_audit_records_total": lambda: parts.auditing.written,
        "mcp_gateway_audit_records_dropped_total": lambda: parts.auditing.dropped,
        "mcp_gateway_audit_failing": lambda: parts.auditing.is_failing,
    }


def names(catalog: Catalog) -> dict[str, frozenset[str]]:
    """By kind, the names that calls may be counted under."""
    prompts = frozenset(catalog.prompts)
    resources = frozenset(each.name for each in (*catalog.resources.values(), *catalog.resource_templates))
    return {
        "tool": frozenset(catalog.tools),
        "resource": resources,
        "prompt": prompts,
        "completion": prompts | resources,
    }


def _work(services: Services, dispatcher: Dispatcher) -> Sources:
    return {
        "mcp_gateway_calls_running": lambda: dispatcher.slots.running,
        "mcp_gateway_calls_waiting": lambda: dispatcher.slots.waiting,
        "mcp_gateway_children": lambda: {
            ("running",): services.processes.running,
            ("ending",): services.processes.ending,
        },
        "mcp_gateway_threads_busy": lambda: services.threads.busy,
        "mcp_gateway_threads_stuck": lambda: services.threads.stuck,
        "mcp_gateway_outputs_too_large_total": lambda: _by_label(services.overflows.counts),
        "mcp_gateway_outputs_parked": lambda: services.parked.count,
    }


def _clients(parts: Parts) -> Sources:
    def streams() -> Reading:
        listeners = parts.listeners()
        return 0 if listeners is None else len(listeners.streams)

    tally = parts.dispatcher.announcements.tally
    return {
        "mcp_gateway_limit_refusals_total": lambda: _by_label(parts.refusals),
        "mcp_gateway_limit_used": lambda: _by_label({name: len(ration) for name, ration in parts.rations.items()}),
        "mcp_gateway_limit_max": lambda: _by_label({name: ration.in_all for name, ration in parts.rations.items()}),
        "mcp_gateway_sessions": lambda: Counter(
            (binding.value, session.revision) for binding, session in parts.open_sessions()
        ),
        "mcp_gateway_streams": streams,
        "mcp_gateway_notifications_sent_total": lambda: _by_label(tally.sent),
        "mcp_gateway_notifications_dropped_total": lambda: _by_label(tally.dropped),
    }


def _config(offer: Offer, reloader: Reloader[Build]) -> Sources:
    def last_good() -> float:
        return reloader.last_good.timestamp()

    return {
        "mcp_gateway_primitives": lambda: _counts(offer.store.current),
        "mcp_gateway_primitives_left_out": lambda: Counter(
            (each.kind.removesuffix("s"),) for each in offer.store.current.left_out
        ),
        "mcp_gateway_config_info": lambda: {(offer.served.digest,): 1},
        "mcp_gateway_config_generation": lambda: offer.store.current.generation,
        "mcp_gateway_config_problems": lambda: len(reloader.status.problems),
        "mcp_gateway_config_warnings": lambda: len(offer.store.current.warnings),
        "mcp_gateway_config_restart_required": lambda: bool(offer.restart_required),
        "mcp_gateway_config_last_reload_successful": lambda: reloader.status.is_good,
        "mcp_gateway_config_last_reload_success_timestamp_seconds": last_good,
        "mcp_gateway_config_reloads_total": lambda: {
            ("success",): reloader.succeeded,
            ("failure",): reloader.refused,
        },
        "mcp_gateway_config_watch_failed": lambda: reloader.watch_error is not None,
    }


def _counts(catalog: Catalog) -> Reading:
    return {
        ("tool",): len(catalog.tools),
        ("resource",): len(catalog.resources),
        ("resource_template",): len(catalog.resource_templates),
        ("prompt",): len(catalog.prompts),
    }


def _by_label(counts: Mapping[str, int]) -> Reading:
    return {(label,): count for label, count in counts.items()}
