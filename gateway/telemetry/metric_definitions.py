"""Definitions of all metrics. A test compares the definitions with `docs/metrics.md`.

Names follow the Prometheus conventions (prometheus.io/docs/practices/naming). Label values come from a closed set:
configured names, protocol revisions and fixed words, never text from callers.
"""

from typing import Final, Literal

import msgspec

_CALL_LABELS: Final = ("kind", "name", "era")
SECONDS_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class MetricDefinition(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    of_workers: Literal["sum", "max", "min"] = "sum"


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
    "Duration of calls, including the time in the queue and open questions.",
    _CALL_LABELS,
)
UPSTREAM_SECONDS: Final = MetricDefinition(
    "mcp_gateway_upstream_seconds",
    "histogram",
    "Duration of requests to an upstream, including the wait for its `concurrency`.",
    ("upstream",),
)
COUNTED: Final = (CALLS, CALL_SECONDS, UPSTREAM_SECONDS)
"""Metrics that are updated when calls start and end."""

READ: Final = (
    MetricDefinition(
        "mcp_gateway_build_info", "gauge", "Always 1, with the version of the gateway.", ("version",), of_workers="max"
    ),
    MetricDefinition(
        "mcp_gateway_ready", "gauge", "1 when the daemon accepts calls, 0 while it starts or stops.", of_workers="max"
    ),
    MetricDefinition(
        "mcp_gateway_calls_in_flight",
        "gauge",
        "Calls that have started but not ended, including calls in a queue.",
        _CALL_LABELS,
    ),
    MetricDefinition("mcp_gateway_calls_running", "gauge", "Calls that count against `concurrency`."),
    MetricDefinition("mcp_gateway_calls_waiting", "gauge", "Calls that wait in a `queue` for `concurrency`."),
    MetricDefinition(
        "mcp_gateway_limit_refusals_total",
        "counter",
        "Calls and connections rejected by a limit: rate, concurrency (with a full queue), tasks, sessions, streams, "
        "connections, or unread (responses).",
        ("limit",),
    ),
    MetricDefinition(
        "mcp_gateway_limit_used",
        "gauge",
        "Current use of `limits`: sessions, streams, connections, unread (bytes).",
        ("limit",),
    ),
    MetricDefinition("mcp_gateway_limit_max", "gauge", "The value of the limit.", ("limit",)),
    MetricDefinition(
        "mcp_gateway_requests_denied_total",
        "counter",
        "Requests without a valid credential, by HTTP status of the response.",
        ("status",),
    ),
    MetricDefinition(
        "mcp_gateway_sessions",
        "gauge",
        "Sessions of the legacy era, by transport and protocol revision. The modern era has no sessions.",
        ("transport", "revision"),
    ),
    MetricDefinition(
        "mcp_gateway_sessions_restored_total",
        "counter",
        "Sessions of the legacy era that another process started, for example before a restart.",
    ),
    MetricDefinition("mcp_gateway_streams", "gauge", "Open event streams without a time limit."),
    MetricDefinition(
        "mcp_gateway_notifications_sent_total",
        "counter",
        "Notifications sent to clients, by method.",
        ("method",),
    ),
    MetricDefinition(
        "mcp_gateway_notifications_dropped_total",
        "counter",
        "Notifications dropped because a client did not read them, by method.",
        ("method",),
    ),
    MetricDefinition(
        "mcp_gateway_upstream_up",
        "gauge",
        "1 while an upstream is connected and responds, 0 otherwise.",
        ("upstream",),
        of_workers="min",
    ),
    MetricDefinition(
        "mcp_gateway_upstream_calls_total",
        "counter",
        "Requests to an upstream, by `outcome`: success, or error (including no response).",
        ("upstream", "outcome"),
    ),
    MetricDefinition(
        "mcp_gateway_upstream_restarts_total",
        "counter",
        "Unexpected ends of the connection to an upstream.",
        ("upstream",),
    ),
    MetricDefinition("mcp_gateway_database_connections", "gauge", "Open connections to a database.", ("database",)),
    MetricDefinition(
        "mcp_gateway_database_connections_in_use",
        "gauge",
        "Calls that use a database connection, or wait for one.",
        ("database",),
    ),
    MetricDefinition(
        "mcp_gateway_database_failures_total",
        "counter",
        "Attempts that failed because a database was unavailable or locked.",
        ("database",),
    ),
    # Each worker serves the whole catalog, so a sum would be wrong.
    MetricDefinition("mcp_gateway_primitives", "gauge", "Offered definitions, by kind.", ("kind",), of_workers="max"),
    MetricDefinition(
        "mcp_gateway_view_primitives", "gauge", "Definitions in each view, by kind.", ("view", "kind"), of_workers="max"
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
        "Always 1, with a hash of all files and plugins except secrets.",
        ("hash",),
        of_workers="max",
    ),
    MetricDefinition(
        "mcp_gateway_config_generation",
        "gauge",
        "Number of the catalog, which increases whenever the catalog changes.",
        of_workers="max",
    ),
    MetricDefinition(
        "mcp_gateway_config_problems",
        "gauge",
        "Errors in the files on disk that prevent them from being served.",
        of_workers="max",
    ),
    MetricDefinition(
        "mcp_gateway_config_warnings", "gauge", "Warnings about the served configuration.", of_workers="max"
    ),
    MetricDefinition(
        "mcp_gateway_config_restart_required",
        "gauge",
        "1 when a changed part of the configuration requires a restart.",
        of_workers="max",
    ),
    MetricDefinition(
        # Report 0 if the reload of any worker has failed.
        "mcp_gateway_config_last_reload_successful",
        "gauge",
        "1 when the served configuration matches the files on disk.",
        of_workers="min",
    ),
    MetricDefinition(
        "mcp_gateway_config_last_reload_success_timestamp_seconds",
        "gauge",
        "Time of the last successful load.",
        of_workers="min",
    ),
    MetricDefinition(
        "mcp_gateway_config_reloads_total",
        "counter",
        "Reloads, by `result`: success, or failure (the previous configuration remains active).",
        ("result",),
    ),
    MetricDefinition("mcp_gateway_audit_records_total", "counter", "Records written to the audit log."),
    MetricDefinition(
        "mcp_gateway_audit_records_dropped_total",
        "counter",
        "Audit records that were dropped because the buffer was full.",
    ),
    MetricDefinition(
        "mcp_gateway_audit_failing", "gauge", "1 while the audit log cannot be written.", of_workers="max"
    ),
    MetricDefinition(
        "mcp_gateway_state_durable",
        "gauge",
        "1 while persistent state is written to the state directory, 0 while it is only in memory.",
        of_workers="min",
    ),
    MetricDefinition(
        "mcp_gateway_state_faults_total",
        "counter",
        "Failed writes to `state.sqlite`, by SQLite result code.",
        ("reason",),
    ),
    MetricDefinition(
        "mcp_gateway_store_up",
        "gauge",
        "1 while the shared store of all replicas (`--store`) is available, 0 otherwise.",
        of_workers="min",
    ),
    MetricDefinition(
        "mcp_gateway_store_operations_total", "counter", "Commands and scripts completed by the shared store."
    ),
    MetricDefinition("mcp_gateway_store_seconds_total", "counter", "Total duration of these commands and scripts."),
    MetricDefinition(
        "mcp_gateway_store_faults_total",
        "counter",
        "Failures of the shared store, by error name.",
        ("reason",),
    ),
    MetricDefinition(
        "mcp_gateway_store_messages_total", "counter", "Messages between replicas, by `direction`.", ("direction",)
    ),
    MetricDefinition(
        "mcp_gateway_config_watch_failed",
        "gauge",
        "1 while file changes are detected only by polling.",
        of_workers="max",
    ),
    MetricDefinition(
        "mcp_gateway_children",
        "gauge",
        "Child processes, by `state`: running for a call, or ending together with their descendants.",
        ("state",),
    ),
    MetricDefinition(
        "mcp_gateway_tasks",
        "gauge",
        "Stored tasks, by `status`: working, input_required, completed, failed or cancelled.",
        ("status",),
        of_workers="max",
    ),
    MetricDefinition("mcp_gateway_orphans", "gauge", "Processes started by calls whose parent processes have ended."),
    MetricDefinition("mcp_gateway_orphans_reaped_total", "counter", "Orphaned processes that have ended."),
    MetricDefinition(
        "mcp_gateway_strays_killed_total", "counter", "Orphaned processes that outlived their calls and were killed."
    ),
    MetricDefinition(
        "mcp_gateway_threads_busy",
        "gauge",
        "Threads that run plugin functions, read files or format large outputs, including stuck threads.",
    ),
    MetricDefinition(
        "mcp_gateway_threads_stuck",
        "gauge",
        "Plugin functions and file reads that still run after their calls have ended.",
    ),
    MetricDefinition(
        "mcp_gateway_outputs_too_large_total",
        "counter",
        "Outputs over `max_size`, by action (`overflow`): truncate, resource or error.",
        ("overflow",),
    ),
    MetricDefinition(
        "mcp_gateway_outputs_mismatched_total",
        "counter",
        "Outputs that did not match their schema but were returned (`mismatch: accept`).",
    ),
    MetricDefinition("mcp_gateway_outputs_parked", "gauge", "Complete outputs that are stored as resources."),
)
"""Metrics that are read from their sources on each scrape."""

STANDARD: Final = (
    MetricDefinition("process_cpu_seconds_total", "counter", "CPU time of the daemon, without its child processes."),
    MetricDefinition("process_max_fds", "gauge", "Maximum number of open file descriptors."),
    MetricDefinition("process_open_fds", "gauge", "Number of open file descriptors."),
    MetricDefinition("process_resident_memory_bytes", "gauge", "Resident memory of the daemon."),
    MetricDefinition("process_start_time_seconds", "gauge", "Start time of the daemon.", of_workers="min"),
    MetricDefinition("process_virtual_memory_bytes", "gauge", "Virtual memory of the daemon."),
)
"""Standard process metrics of Prometheus client libraries, only on Linux."""

METRIC_DEFINITIONS: Final = (*COUNTED, *READ, *STANDARD)
