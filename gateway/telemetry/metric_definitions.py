"""The table of all metrics: name, kind, meaning and labels. A test holds `docs/metrics.md` to it.

Names follow the conventions of Prometheus (prometheus.io/docs/practices/naming). The values of labels are a closed set:
names of the file, revisions, and fixed words, but nothing that a caller sent.
"""

from typing import Final, Literal

import msgspec

_CALL_LABELS: Final = ("kind", "name", "era")
SECONDS_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The bounds of all histograms: from a fixed answer to a deployment that takes minutes."""


class MetricDefinition(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    of_workers: Literal["sum", "max", "min"] = "sum"
    """The value for all workers of a daemon, from that of each."""


CALLS: Final = MetricDefinition(
    "mcp_gateway_calls_total",
    "counter",
    "Calls that have ended: tool calls, resource reads, prompts and completions. "
    "`outcome` is ok, tool_error, protocol_error, input_required or cancelled.",
    (*_CALL_LABELS, "outcome"),
)
CALL_SECONDS: Final = MetricDefinition(
    "mcp_gateway_call_duration_seconds",
    "histogram",
    "How long calls took, the wait for their turn and open questions included.",
    _CALL_LABELS,
)
UPSTREAM_SECONDS: Final = MetricDefinition(
    "mcp_gateway_upstream_seconds",
    "histogram",
    "How long requests to an upstream took, the wait for its `concurrency` included.",
    ("upstream",),
)
COUNTED: Final = (CALLS, CALL_SECONDS, UPSTREAM_SECONDS)
"""Metrics that are counted as calls begin and end."""

READ: Final = (
    MetricDefinition(
        "mcp_gateway_build_info", "gauge", "1, with the version of the gateway.", ("version",), of_workers="max"
    ),
    MetricDefinition(
        "mcp_gateway_ready", "gauge", "1 when calls are welcome, 0 while starting and stopping.", of_workers="max"
    ),
    MetricDefinition(
        "mcp_gateway_calls_in_flight",
        "gauge",
        "Calls that have begun and not ended, those that wait for their turn included.",
        _CALL_LABELS,
    ),
    MetricDefinition(
        "mcp_gateway_calls_running", "gauge", "Calls that hold one of the places that `concurrency` allows."
    ),
    MetricDefinition("mcp_gateway_calls_waiting", "gauge", "Calls that wait in a `queue` for such a place."),
    MetricDefinition(
        "mcp_gateway_limit_refusals_total",
        "counter",
        "What was refused because of a limit: rate, concurrency (where the queue is full too), tasks, sessions, "
        "streams, connections, or unread (answers).",
        ("limit",),
    ),
    MetricDefinition(
        "mcp_gateway_limit_used",
        "gauge",
        "How much of what `limits` has a number for is in use: sessions, streams, connections, unread (bytes).",
        ("limit",),
    ),
    MetricDefinition("mcp_gateway_limit_max", "gauge", "How much of it there is.", ("limit",)),
    MetricDefinition(
        "mcp_gateway_requests_denied_total",
        "counter",
        "Requests without a credential that is good here, by the HTTP status that they were answered with.",
        ("status",),
    ),
    MetricDefinition(
        "mcp_gateway_sessions",
        "gauge",
        "Sessions of the legacy era by transport and protocol revision. The modern era has none.",
        ("transport", "revision"),
    ),
    MetricDefinition(
        "mcp_gateway_sessions_restored_total",
        "counter",
        "Sessions of the legacy era that another process began, before a restart, and this one went on with.",
    ),
    MetricDefinition("mcp_gateway_streams", "gauge", "Open event streams that may last for ever."),
    MetricDefinition(
        "mcp_gateway_notifications_sent_total",
        "counter",
        "Notifications that clients were sent, by method.",
        ("method",),
    ),
    MetricDefinition(
        "mcp_gateway_notifications_dropped_total",
        "counter",
        "Notifications that were dropped because a client did not read, by method.",
        ("method",),
    ),
    MetricDefinition(
        "mcp_gateway_upstream_up",
        "gauge",
        "1 while an upstream is connected and answers, 0 otherwise.",
        ("upstream",),
        of_workers="min",
    ),
    MetricDefinition(
        "mcp_gateway_upstream_calls_total",
        "counter",
        "Requests to an upstream by `outcome`: success, or error, whether it answered with one or not at all.",
        ("upstream", "outcome"),
    ),
    MetricDefinition(
        "mcp_gateway_upstream_restarts_total",
        "counter",
        "How often a connection with an upstream ended by itself.",
        ("upstream",),
    ),
    MetricDefinition(
        "mcp_gateway_database_connections", "gauge", "Open connections with a database that was used.", ("database",)
    ),
    MetricDefinition(
        "mcp_gateway_database_connections_in_use",
        "gauge",
        "Calls that use one of them, or wait for one.",
        ("database",),
    ),
    MetricDefinition(
        "mcp_gateway_database_failures_total",
        "counter",
        "Attempts that failed because a database was away, or locked.",
        ("database",),
    ),
    # Each worker serves the whole catalog, of which a sum would be a multiple.
    MetricDefinition("mcp_gateway_primitives", "gauge", "What is on offer, by kind.", ("kind",), of_workers="max"),
    MetricDefinition(
        "mcp_gateway_view_primitives", "gauge", "What each view holds, by kind.", ("view", "kind"), of_workers="max"
    ),
    MetricDefinition(
        "mcp_gateway_primitives_left_out",
        "gauge",
        "Definitions whose `requires` is not met, by kind.",
        ("kind",),
        of_workers="max",
    ),
    MetricDefinition(
        "mcp_gateway_config_info",
        "gauge",
        "1, with one hash of files and plugins, but no secrets.",
        ("hash",),
        of_workers="max",
    ),
    MetricDefinition(
        "mcp_gateway_config_generation", "gauge", "Grows whenever what is on offer changes.", of_workers="max"
    ),
    MetricDefinition(
        "mcp_gateway_config_problems",
        "gauge",
        "Mistakes that keep the files on disk from being served.",
        of_workers="max",
    ),
    MetricDefinition("mcp_gateway_config_warnings", "gauge", "Warnings about what is served.", of_workers="max"),
    MetricDefinition(
        "mcp_gateway_config_restart_required",
        "gauge",
        "1 when part of the file takes effect with a restart alone.",
        of_workers="max",
    ),
    MetricDefinition(
        # The worst of all workers: one that still serves older files counts.
        "mcp_gateway_config_last_reload_successful",
        "gauge",
        "1 when what is on disk is what is served.",
        of_workers="min",
    ),
    MetricDefinition(
        "mcp_gateway_config_last_reload_success_timestamp_seconds",
        "gauge",
        "When files were last loaded with success.",
        of_workers="min",
    ),
    MetricDefinition(
        "mcp_gateway_config_reloads_total",
        "counter",
        "Reloads by `result`: success, or failure, which leaves the older files served.",
        ("result",),
    ),
    MetricDefinition("mcp_gateway_audit_records_total", "counter", "Records that were written to the audit log."),
    MetricDefinition("mcp_gateway_audit_records_dropped_total", "counter", "Records that there was no room for."),
    MetricDefinition(
        "mcp_gateway_audit_failing", "gauge", "1 while the audit log cannot be written.", of_workers="max"
    ),
    MetricDefinition(
        "mcp_gateway_state_durable",
        "gauge",
        "1 while what survives a restart is written to the state directory; 0 while it is in memory alone.",
        of_workers="min",
    ),
    MetricDefinition(
        "mcp_gateway_state_faults_total",
        "counter",
        "How often `state.sqlite` could not be written, by the name of SQLite's result code.",
        ("reason",),
    ),
    MetricDefinition(
        "mcp_gateway_store_up",
        "gauge",
        "1 while the store of all replicas (`--store`) can be used, 0 while it is not.",
        of_workers="min",
    ),
    MetricDefinition(
        "mcp_gateway_store_operations_total", "counter", "Commands and scripts that the store has answered."
    ),
    MetricDefinition("mcp_gateway_store_seconds_total", "counter", "How long these took."),
    MetricDefinition(
        "mcp_gateway_store_faults_total",
        "counter",
        "How often the store could not be used, by the name of the error.",
        ("reason",),
    ),
    MetricDefinition(
        "mcp_gateway_store_messages_total", "counter", "Messages between replicas, by `direction`.", ("direction",)
    ),
    MetricDefinition(
        "mcp_gateway_config_watch_failed",
        "gauge",
        "1 while changes of files are found by polling alone.",
        of_workers="max",
    ),
    MetricDefinition(
        "mcp_gateway_children",
        "gauge",
        "Child processes by `state`: running for a call, or ending with what they started.",
        ("state",),
    ),
    MetricDefinition(
        "mcp_gateway_tasks",
        "gauge",
        "Tasks that are kept, by `status`: working, input_required, completed, failed or cancelled.",
        ("status",),
        of_workers="max",
    ),
    MetricDefinition("mcp_gateway_orphans", "gauge", "Processes that calls have started whose own parents have ended."),
    MetricDefinition("mcp_gateway_orphans_reaped_total", "counter", "Such processes that have ended."),
    MetricDefinition(
        "mcp_gateway_strays_killed_total", "counter", "Such processes that outlived their calls, and were killed."
    ),
    MetricDefinition(
        "mcp_gateway_threads_busy",
        "gauge",
        "Threads that run a function of a plugin, or read files and shape large outputs, the stuck ones included.",
    ),
    MetricDefinition(
        "mcp_gateway_threads_stuck",
        "gauge",
        "Functions of plugins, and reads of files, that still run although their calls have ended.",
    ),
    MetricDefinition(
        "mcp_gateway_outputs_too_large_total",
        "counter",
        "Outputs over `max_size` by what became of them (`overflow`): truncate, resource or error.",
        ("overflow",),
    ),
    MetricDefinition(
        "mcp_gateway_outputs_mismatched_total",
        "counter",
        "Outputs that did not fit their schema, and were given all the same (`mismatch: accept`).",
    ),
    MetricDefinition("mcp_gateway_outputs_parked", "gauge", "Whole outputs that are kept to be read as a resource."),
)
"""Metrics that are read from their sources at each scrape."""

STANDARD: Final = (
    MetricDefinition("process_cpu_seconds_total", "counter", "Processor time of the daemon, its children left out."),
    MetricDefinition("process_max_fds", "gauge", "How many file descriptors it may have open."),
    MetricDefinition("process_open_fds", "gauge", "How many it has open."),
    MetricDefinition("process_resident_memory_bytes", "gauge", "Its memory."),
    MetricDefinition("process_start_time_seconds", "gauge", "When it was started.", of_workers="min"),
    MetricDefinition("process_virtual_memory_bytes", "gauge", "Its address space."),
)
"""Metrics of the process that every Prometheus client library has, on Linux alone."""

METRIC_DEFINITIONS: Final = (*COUNTED, *READ, *STANDARD)
