"""Every documented metric exists, and changes with the quantity that it measures."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

from gateway.json_types import JsonObject
from gateway.telemetry.metric_definitions import METRIC_DEFINITIONS, STANDARD
from tests.e2e.daemon import Daemon, post_call, serving
from tests.messages import initialize_request, modern_request, open_session

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECONDS: Final = 15.0
FILE: Final = """
audit: {file: audit.log}
listen: {http: "127.0.0.1:0"}
plugins: [plugins]
tools:
  hello: {description: Greets., content: hello}
  sleeps: {description: Takes its time., shell: {command: [sleep, "60"]}, concurrency: 1}
  leaves: {description: Leaves a process running., shell: {command: [sh, -c, "(setsid sleep 60 &); sleep 60"]}}
  parts: {description: Starts a process that exits by itself., shell: {command: [sh, -c, "(setsid true &)"]}}
  hangs: {python: "slow:hangs", timeout: 200ms}
  reports: {python: "slow:reports"}
  announces: {python: "slow:announces"}
  job: {description: Becomes a task., content: done, task: optional}
  rare: {description: Is not called often., content: rare, rate_limit: 1/hour}
  long:
    description: Says more than fits.
    shell: {command: [seq, "1000"]}
    output: {max_size: 100}
  parked:
    description: Says more than fits, and keeps it.
    shell: {command: [seq, "1000"]}
    output: {max_size: 100, overflow: resource}
  elsewhere:
    description: Needs a missing program.
    requires: {commands: [no-such-program-anywhere]}
    content: never
"""
PLUGIN: Final = '''
import threading
from gateway.plugin import Context

GATE = threading.Event()

def hangs() -> str:
    """Wait for ever."""
    GATE.wait()
    return "at last"

async def reports(context: Context) -> str:
    """Report."""
    await context.progress(1)
    return "reported"

async def announces(context: Context) -> str:
    """Announce."""
    context.notify_changed("tools")
    return "announced"
'''

Series = tuple[str, frozenset[tuple[str, str]]]


@dataclass
class Served:
    daemon: Daemon
    config: Path
    url: str
    http: aiohttp.ClientSession

    async def scrape(self) -> Mapping[Series, float]:
        async with self.http.get(urljoin(self.url, "/metrics")) as response:
            assert response.status == 200
            assert response.headers["Cache-Control"] == "no-store"
            text = await response.text()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def value(self, name: str, labels: Mapping[str, str]) -> float:
        """Return the sum of the series with these labels."""
        found = await self.scrape()
        return sum(value for (sample, given), value in found.items() if sample == name and labels.items() <= set(given))

    async def labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of the only series with this name."""
        [labels] = [dict(labels) for sample, labels in await self.scrape() if sample == name]
        return labels

    async def comes_to(self, name: str, labels: Mapping[str, str], holds: Callable[[float], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not holds(await self.value(name, labels)):
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def running(self, tool: str, times: int = 1) -> AsyncIterator[None]:
        """Start calls, which are cancelled at the end of the context."""
        calls = [asyncio.create_task(post_call(self.http, self.url, tool)) for _ in range(times)]
        try:
            yield
        finally:
            for each in calls:
                each.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await self.comes_to("mcp_gateway_calls_running", {}, lambda value: value == 0)

    async def reload(self) -> int:
        async with self.http.post(urljoin(self.url, "/-/reload")) as response:
            return response.status


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    config = tmp_path_factory.mktemp("metrics") / "config.yaml"
    config.write_text(FILE)
    (config.parent / "plugins").mkdir()
    (config.parent / "plugins" / "slow.py").write_text(PLUGIN)
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=4 * SECONDS)) as http,
        serving(config) as daemon,
    ):
        yield Served(daemon=daemon, config=config, url=await daemon.url(), http=http)


Cause = Callable[[Served], AbstractAsyncContextManager[None]]


def calling(tool: str, times: int = 1) -> Cause:
    """Make calls, and wait until they have ended."""

    @asynccontextmanager
    async def cause(served: Served) -> AsyncIterator[None]:
        for _ in range(times):
            await post_call(served.http, served.url, tool)
        yield

    return cause


def running(tool: str, times: int = 1) -> Cause:
    return lambda served: served.running(tool, times)


@asynccontextmanager
async def a_session(served: Served) -> AsyncIterator[None]:
    """Open a session of 2025-06-18 with a stream."""
    session = await open_session(served.http, served.url, "2025-06-18")
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    async with served.http.post(served.url, json=initialized, headers=session) as response:
        assert response.status == 202
    async with served.http.get(served.url, headers={**session, "Accept": "text/event-stream"}) as stream:
        assert stream.status == 200
        yield
    async with served.http.delete(served.url, headers=session) as response:
        assert response.status < 300


@asynccontextmanager
async def a_received_announcement(served: Served) -> AsyncIterator[None]:
    async with a_session(served):
        await post_call(served.http, served.url, "announces")
        yield


@asynccontextmanager
async def progress(served: Served) -> AsyncIterator[None]:
    message = modern_request("tools/call", {"name": "reports", "arguments": {}, "_meta": {"progressToken": 1}})
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "reports"}
    async with served.http.post(served.url, json=message, headers=headers) as response:
        assert "notifications/progress" in await response.text()
    yield


@asynccontextmanager
async def a_task(served: Served) -> AsyncIterator[None]:
    capabilities: JsonObject = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    fields = {"io.modelcontextprotocol/clientCapabilities": capabilities}
    message = modern_request("tools/call", {"name": "job", "arguments": {}, "_meta": fields})
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "job"}
    async with served.http.post(served.url, json=message, headers=headers) as response:
        assert (await response.json())["result"]["resultType"] == "task"
    yield


def saving(text: str, *, status: int) -> Cause:
    """Save a changed file, and the original one afterwards."""

    @asynccontextmanager
    async def cause(served: Served) -> AsyncIterator[None]:
        served.config.write_text(FILE + text)
        assert await served.reload() == status
        try:
            yield
        finally:
            served.config.write_text(FILE)
            assert await served.reload() == 200

    return cause


ONE_MORE_TOOL: Final = saving("  more: {description: More., content: more}\n", status=200)
MISTAKE: Final = saving("  more: {descriptoin: More., content: more}\n", status=422)


@dataclass(frozen=True, kw_only=True)
class MetricChange:
    """An action that changes a metric."""

    cause: Cause
    labels: Mapping[str, str] = field(default_factory=dict)
    by: float = 1
    comes_back: bool = False
    """Whether the metric returns to its old value afterwards."""


CHANGES: Final[Mapping[str, MetricChange]] = {
    "mcp_gateway_calls_total": MetricChange(cause=calling("hello"), labels={"name": "hello", "outcome": "ok"}),
    "mcp_gateway_call_duration_seconds": MetricChange(cause=calling("hello"), labels={"name": "hello"}),
    "mcp_gateway_calls_in_flight": MetricChange(cause=running("sleeps"), labels={"name": "sleeps"}, comes_back=True),
    "mcp_gateway_calls_running": MetricChange(cause=running("sleeps"), comes_back=True),
    "mcp_gateway_calls_waiting": MetricChange(cause=running("sleeps", times=3), by=2, comes_back=True),
    "mcp_gateway_limit_refusals_total": MetricChange(cause=calling("rare", times=3), by=2, labels={"limit": "rate"}),
    "mcp_gateway_limit_used": MetricChange(cause=a_session, labels={"limit": "streams"}, comes_back=True),
    "mcp_gateway_sessions": MetricChange(
        cause=a_session, labels={"revision": "2025-06-18", "transport": "streamable-http"}, comes_back=True
    ),
    "mcp_gateway_streams": MetricChange(cause=a_session, comes_back=True),
    "mcp_gateway_notifications_sent_total": MetricChange(cause=progress, labels={"method": "notifications/progress"}),
    "mcp_gateway_primitives": MetricChange(cause=ONE_MORE_TOOL, labels={"kind": "tool"}, comes_back=True),
    "mcp_gateway_view_primitives": MetricChange(
        cause=saving("views: {one: {include: {tools: [hello]}}}\n", status=200),
        labels={"view": "one", "kind": "tool"},
    ),
    "mcp_gateway_primitives_left_out": MetricChange(
        cause=saving("  less: {content: less, requires: {env: [NO_SUCH_VARIABLE]}}\n", status=200),
        labels={"kind": "tool"},
        comes_back=True,
    ),
    "mcp_gateway_config_generation": MetricChange(cause=ONE_MORE_TOOL),
    "mcp_gateway_config_problems": MetricChange(cause=MISTAKE, comes_back=True),
    "mcp_gateway_config_warnings": MetricChange(
        cause=saving("  bare: {content: it has no description}\n", status=200), comes_back=True
    ),
    "mcp_gateway_config_restart_required": MetricChange(
        cause=saving("limits: {sessions: 7}\n", status=200), comes_back=True
    ),
    "mcp_gateway_config_last_reload_successful": MetricChange(cause=MISTAKE, by=-1, comes_back=True),
    "mcp_gateway_config_reloads_total": MetricChange(cause=MISTAKE, labels={"result": "failure"}),
    "mcp_gateway_children": MetricChange(cause=running("sleeps"), labels={"state": "running"}, comes_back=True),
    "mcp_gateway_tasks": MetricChange(cause=a_task, labels={"status": "completed"}),
    "mcp_gateway_orphans": MetricChange(cause=running("leaves"), comes_back=True),
    "mcp_gateway_orphans_reaped_total": MetricChange(cause=calling("parts")),
    "mcp_gateway_threads_busy": MetricChange(cause=calling("hangs")),
    "mcp_gateway_threads_stuck": MetricChange(cause=calling("hangs")),
    "mcp_gateway_outputs_too_large_total": MetricChange(cause=calling("long"), labels={"overflow": "truncate"}),
    "mcp_gateway_outputs_parked": MetricChange(cause=calling("parked")),
}

STEADY: Final[Mapping[str, Callable[[float], bool]]] = {
    "mcp_gateway_build_info": lambda value: value == 1,
    "mcp_gateway_ready": lambda value: value == 1,
    "mcp_gateway_config_info": lambda value: value == 1,
    "mcp_gateway_audit_records_total": lambda value: value > 0,
    "mcp_gateway_audit_records_dropped_total": lambda value: value == 0,
    "mcp_gateway_audit_failing": lambda value: value == 0,
    "mcp_gateway_sessions_restored_total": lambda value: value == 0,
    "mcp_gateway_state_durable": lambda value: value == 0,
    "mcp_gateway_state_faults_total": lambda value: value == 0,
    "mcp_gateway_upstream_up": lambda value: value == 0,
    "mcp_gateway_upstream_calls_total": lambda value: value == 0,
    "mcp_gateway_upstream_restarts_total": lambda value: value == 0,
    "mcp_gateway_upstream_seconds": lambda value: value == 0,
    "mcp_gateway_config_watch_failed": lambda value: value == 0,
    "mcp_gateway_config_last_reload_success_timestamp_seconds": lambda value: value > 1_700_000_000,
    "mcp_gateway_strays_killed_total": lambda value: value == 0,
    "mcp_gateway_limit_max": lambda value: value > 20_000,
    "mcp_gateway_requests_denied_total": lambda value: value == 0,
    "mcp_gateway_notifications_dropped_total": lambda value: value == 0,
    "mcp_gateway_database_connections": lambda value: value == 0,
    "mcp_gateway_database_connections_in_use": lambda value: value == 0,
    "mcp_gateway_database_failures_total": lambda value: value == 0,
    "mcp_gateway_outputs_mismatched_total": lambda value: value == 0,
    "mcp_gateway_store_faults_total": lambda value: value == 0,
    "mcp_gateway_store_messages_total": lambda value: value == 0,
    "mcp_gateway_store_operations_total": lambda value: value == 0,
    "mcp_gateway_store_seconds_total": lambda value: value == 0,
    "mcp_gateway_store_up": lambda value: value == 0,
    **{measure.name: lambda value: value > 0 for measure in STANDARD},
}
"""Metrics that a short test cannot change, or that other tests cover."""


async def test_every_metric_is_tested() -> None:
    assert {measure.name for measure in METRIC_DEFINITIONS} == CHANGES.keys() | STEADY.keys()


@pytest.mark.parametrize("name", CHANGES)
async def test_metric_changes_with_its_subject(served: Served, name: str) -> None:
    move = CHANGES[name]
    sample = f"{name}_count" if name.endswith("duration_seconds") else name
    before = await served.value(sample, move.labels)
    async with move.cause(served):
        await served.comes_to(sample, move.labels, lambda value: value == before + move.by)
    if move.comes_back:
        await served.comes_to(sample, move.labels, lambda value: value == before)


@pytest.mark.parametrize("name", STEADY)
async def test_unchanged_metric_has_a_possible_value(served: Served, name: str) -> None:
    await post_call(served.http, served.url, "hello")  # is recorded in the audit log
    await served.comes_to(name, {}, STEADY[name])


async def test_announcements_to_sessions_are_counted(served: Served) -> None:
    method = {"method": "notifications/tools/list_changed"}
    before = await served.value("mcp_gateway_notifications_sent_total", method)
    async with a_received_announcement(served):
        await served.comes_to("mcp_gateway_notifications_sent_total", method, lambda value: value == before + 1)


async def test_successful_reload_is_counted_with_its_time(served: Served) -> None:
    success, stamp = {"result": "success"}, "mcp_gateway_config_last_reload_success_timestamp_seconds"
    before = [await served.value("mcp_gateway_config_reloads_total", success), await served.value(stamp, {})]
    config = (await served.labels("mcp_gateway_config_info"))["hash"]
    async with ONE_MORE_TOOL(served):
        assert await served.value("mcp_gateway_config_reloads_total", success) == before[0] + 1
        assert await served.value(stamp, {}) > before[1]
        assert (await served.labels("mcp_gateway_config_info"))["hash"] != config
    assert (await served.labels("mcp_gateway_config_info"))["hash"] == config


async def test_sessions_are_counted_on_each_transport(served: Served) -> None:
    message = initialize_request("2024-11-05")
    over_sse = {"transport": "http+sse", "revision": "2024-11-05"}
    async with served.http.get(urljoin(served.url, "/sse"), headers={"Accept": "text/event-stream"}) as stream:
        await stream.content.readline()
        endpoint = (await stream.content.readline()).decode().removeprefix("data: ").strip()
        assert await served.value("mcp_gateway_sessions", over_sse) == 0
        async with served.http.post(urljoin(served.url, endpoint), json=message) as response:
            assert response.status == 202
        await served.comes_to("mcp_gateway_sessions", over_sse, lambda value: value == 1)
    await served.comes_to("mcp_gateway_sessions", over_sse, lambda value: value == 0)
    async with serving(served.config, "--stdio", "--http", "127.0.0.1:0") as daemon:
        other = Served(daemon=daemon, config=served.config, url=await daemon.url(), http=served.http)
        assert await other.value("mcp_gateway_sessions", {}) == 0
        await daemon.ask(message)
        assert await other.value("mcp_gateway_sessions", {"transport": "stdio", "revision": "2024-11-05"}) == 1


async def test_removed_tool_removes_its_series(served: Served) -> None:
    await post_call(served.http, served.url, "hello")
    async with ONE_MORE_TOOL(served):
        await post_call(served.http, served.url, "more")
        assert await served.value("mcp_gateway_calls_total", {"name": "more"}) == 1
    found = await served.scrape()
    assert [series for series in found if ("name", "more") in series[1]] == []
    assert await served.value("mcp_gateway_calls_total", {"name": "hello"}) > 0


async def test_names_invented_by_callers_are_not_labels(served: Served) -> None:
    await served.scrape()
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}
    for number in range(5):
        name = f"made-up-{number}"
        message = modern_request("tools/call", {"name": name, "arguments": {}})
        async with served.http.post(served.url, json=message, headers={**headers, "Mcp-Name": name}) as response:
            await response.read()
    labels = {"name": "<unknown>", "outcome": "protocol_error"}
    assert await served.value("mcp_gateway_calls_total", labels) == 5
    assert not [series for series in await served.scrape() if "made-up" in str(series)]


async def test_openmetrics_is_negotiated(served: Served) -> None:
    accept = {"Accept": "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;version=0.0.4;q=0.1"}
    async with served.http.get(urljoin(served.url, "/metrics"), headers=accept) as response:
        assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        text = await response.text()
    assert text.endswith("# EOF\n")
    assert "mcp_gateway_calls" in {family.name for family in openmetrics.text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]


async def test_metrics_require_an_operator(served: Served) -> None:
    url = urljoin(served.url, "/metrics")
    async with served.http.get(url, headers={"X-Forwarded-For": "203.0.113.9"}) as response:
        assert response.status == 404
    async with served.http.get(url, headers={"Host": "evil.example"}) as response:
        assert response.status == 421
    async with served.http.post(url) as response:
        assert response.status == 405


async def test_caller_without_a_key_is_counted_and_gets_no_metrics(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("""
listen: {http: "127.0.0.1:0"}
auth: {api_keys: {ops: {secret: correct-horse-battery-staple, scopes: ["gateway:admin"]}}}
tools: {hello: {description: Greets., content: hello}}
""")
    key = {"Authorization": "Bearer correct-horse-battery-staple"}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as http,
        serving(tmp_path / "config.yaml") as daemon,
    ):
        url = urljoin(await daemon.url(), "/metrics")
        async with http.get(url) as response:
            assert response.status == 401
        async with http.get(url, headers=key) as response:
            assert 'mcp_gateway_requests_denied_total{status="401"} 1.0' in await response.text()
