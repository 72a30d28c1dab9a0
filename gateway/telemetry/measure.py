"""What is measured: names, kinds, labels and meanings of every metric, in one table. `docs/metrics.md` shows the same.

Names follow the conventions of Prometheus (prometheus.io/docs/practices/naming). Values of labels are a closed set:
what the file names, revisions, and words of ours; never what a caller sent.
"""

from dataclasses import dataclass
from typing import Final, Literal

CALL_LABELS: Final = ("kind", "name", "era")


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()


CALLS: Final = Measure(
    "mcp_gateway_calls_total",
    "counter",
    "Calls that have ended: tool calls, resource reads, prompts and completions. "
    "`outcome` is ok, tool_error, protocol_error, input_required or cancelled.",
    (*CALL_LABELS, "outcome"),
)
CALL_SECONDS: Final = Measure(
    "mcp_gateway_call_duration_seconds",
    "histogram",
    "How long calls took, the wait for their turn and open questions included.",
    CALL_LABELS,
)
COUNTED: Final = (CALLS, CALL_SECONDS)
"""Those that are counted as calls begin and end."""

READ: Final = (
    Measure("mcp_gateway_build_info", "gauge", "1, with the version of the gateway.", ("version",)),
    Measure("mcp_gateway_ready", "gauge", "1 when calls are welcome, 0 while starting and stopping."),
    Measure(
        "mcp_gateway_calls_in_flight",
        "gauge",
        "Calls that have begun and not ended, those that wait for their turn included.",
        CALL_LABELS,
    ),
    Measure("mcp_gateway_calls_running", "gauge", "Calls that hold one of the places that `concurrency` allows."),
    Measure("mcp_gateway_calls_waiting", "gauge", "Calls that wait in a `queue` for such a place."),
    Measure(
        "mcp_gateway_limit_refusals_total",
        "counter",
        "What was refused because of a limit: rate, concurrency (where the queue is full too), sessions, streams or "
        "connections.",
        ("limit",),
    ),
    Measure(
        "mcp_gateway_limit_used",
        "gauge",
        "How much of what `limits` has a number for is in use: sessions, streams, connections.",
        ("limit",),
    ),
    Measure("mcp_gateway_limit_max", "gauge", "How much of it there is.", ("limit",)),
    Measure(
        "mcp_gateway_requests_denied_total",
        "counter",
        "Requests without a credential that is good here, by the HTTP status that they were answered with.",
        ("status",),
    ),
    Measure(
        "mcp_gateway_sessions",
        "gauge",
        "Sessions of the legacy era by transport and protocol revision. The modern era has none.",
        ("transport", "revision"),
    ),
    Measure("mcp_gateway_streams", "gauge", "Open event streams that may last for ever."),
    Measure(
        "mcp_gateway_notifications_sent_total",
        "counter",
        "Notifications that clients were sent, by method.",
        ("method",),
    ),
    Measure(
        "mcp_gateway_notifications_dropped_total",
        "counter",
        "Notifications that were dropped because a client did not read, by method.",
        ("method",),
    ),
    Measure("mcp_gateway_primitives", "gauge", "What is on offer, by kind.", ("kind",)),
    Measure("mcp_gateway_primitives_left_out", "gauge", "Definitions whose `requires` is not met, by kind.", ("kind",)),
    Measure("mcp_gateway_config_info", "gauge", "1, with one hash of files and plugins, but no secrets.", ("hash",)),
    Measure("mcp_gateway_config_generation", "gauge", "Grows whenever what is on offer changes."),
    Measure("mcp_gateway_config_problems", "gauge", "Mistakes that keep the files on disk from being served."),
    Measure("mcp_gateway_config_warnings", "gauge", "Warnings about what is served."),
    Measure(
        "mcp_gateway_config_restart_required", "gauge", "1 when part of the file takes effect with a restart alone."
    ),
    Measure("mcp_gateway_config_last_reload_successful", "gauge", "1 when what is on disk is what is served."),
    Measure(
        "mcp_gateway_config_last_reload_success_timestamp_seconds", "gauge", "When files were last loaded with success."
    ),
    Measure(
        "mcp_gateway_config_reloads_total",
        "counter",
        "Reloads by `result`: success, or failure, which leaves the older files served.",
        ("result",),
    ),
    Measure("mcp_gateway_audit_records_total", "counter", "Records that were written to the audit log."),
    Measure("mcp_gateway_audit_records_dropped_total", "counter", "Records that there was no room for."),
    Measure("mcp_gateway_audit_failing", "gauge", "1 while the audit log cannot be written."),
    Measure("mcp_gateway_config_watch_failed", "gauge", "1 while changes of files are found by polling alone."),
    Measure(
        "mcp_gateway_children",
        "gauge",
        "Child processes by `state`: running for a call, or ending with what they started.",
        ("state",),
    ),
    Measure("mcp_gateway_threads_busy", "gauge", "Threads that run a function of a plugin, the stuck ones included."),
    Measure(
        "mcp_gateway_threads_stuck", "gauge", "Functions of plugins that still run although their calls have ended."
    ),
    Measure(
        "mcp_gateway_outputs_too_large_total",
        "counter",
        "Outputs over `max_size` by what became of them (`overflow`): truncate, resource or error.",
        ("overflow",),
    ),
    Measure("mcp_gateway_outputs_parked", "gauge", "Whole outputs that are kept to be read as a resource."),
)
"""Those that are asked for when somebody scrapes."""

STANDARD: Final = (
    Measure("process_cpu_seconds_total", "counter", "Processor time of the daemon, its children left out."),
    Measure("process_max_fds", "gauge", "How many file descriptors it may have open."),
    Measure("process_open_fds", "gauge", "How many it has open."),
    Measure("process_resident_memory_bytes", "gauge", "Its memory."),
    Measure("process_start_time_seconds", "gauge", "When it was started."),
    Measure("process_virtual_memory_bytes", "gauge", "Its address space."),
)
"""What every Prometheus client tells of its process; on Linux alone."""

MEASURES: Final = (*COUNTED, *READ, *STANDARD)
