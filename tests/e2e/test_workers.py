"""Workers share one address: crashes, reloads, replacement and shutdown."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import aiohttp
import orjson
import pytest

from gateway.app.workers.combined_reports import metrics_of_all, readiness_of_all, status_of_all
from gateway.json_types import Json
from tests.certificates import Authority
from tests.e2e.daemon import Daemon, post_call, serving, text_of
from tests.e2e.load import Load
from tests.ports import free_port
from tests.programs import is_running
from tests.redis_server import redis_server

SECONDS: Final = 60.0
FILE: Final = """\
listen: {{http: "127.0.0.1:0"}}
tools:
  echo: {{description: {description}, input: {{text: string}}, content: [{{text: "{{{{ text }}}}"}}]}}
"""
KEY: Final = "a key of sixteen bytes"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(FILE.format(description="Repeat a text."))
    return path


@asynccontextmanager
async def workers(config: Path, tmp_path: Path, *, state: str = "state") -> AsyncIterator[tuple[Daemon, str]]:
    """Run a daemon with workers, wait until they are ready, and yield its URL."""
    async with redis_server(tmp_path / "redis") as store:
        environment = {"MCP_GATEWAY_STORE": store.url}
        flags = ("--workers", "2", "--state-dir", state if state == "none" else str(tmp_path / state))
        async with serving(config, *flags, environment=environment, is_forked=False) as daemon:
            await said(daemon, "workers ready")
            yield daemon, await daemon.url()


async def said(daemon: Daemon, name: str) -> Json:
    async with asyncio.timeout(SECONDS):
        while True:
            with suppress(TimeoutError):
                return await daemon.event(name)


async def status(http: aiohttp.ClientSession, url: str) -> Json:
    async with http.get(url.removesuffix("/mcp") + "/-/status") as response:
        return await response.json()


async def until(http: aiohttp.ClientSession, url: str, holds: Callable[[Json], bool]) -> Json:
    async with asyncio.timeout(SECONDS):
        while True:
            with suppress(aiohttp.ClientConnectionError):
                if holds(found := await status(http, url)):
                    return found
            await asyncio.sleep(0.05)


def pids(found: Json) -> set[int]:
    return {each["pid"] for each in found["workers"] if each["state"] == "ready"}


def fresh() -> aiohttp.ClientSession:
    """A client that opens a connection for each request, so that it reaches all workers."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))


def are_gone(processes: set[int]) -> bool:
    """Return whether they have ended. The new parent of a killed supervisor's children may not reap them."""
    return not any(is_running(each) for each in processes)


@pytest.mark.build
async def test_every_worker_reports_for_all_and_all_reload_and_end(config: Path, tmp_path: Path) -> None:
    async with workers(config, tmp_path) as (daemon, url), fresh() as http:
        base = url.removesuffix("/mcp")
        await asyncio.gather(*(post_call(http, url, "echo", text="hi") for _ in range(60)))
        found = await status(http, url)
        assert [each["worker"] for each in found["workers"]] == [0, 1]
        processes = pids(found)
        assert len(processes) == 2
        for _ in range(6):  # any worker can respond
            async with http.get(f"{base}/metrics") as response:
                lines = (await response.text()).splitlines()
            assert 'mcp_gateway_calls_total{era="modern",kind="tool",name="echo",outcome="ok"} 60.0' in _sorted(lines)
            assert "mcp_gateway_ready 1.0" in lines
        config.write_text(FILE.format(description="Return the same text."))
        daemon.signal(signal.SIGHUP)
        await until(http, url, lambda now: [each["generation"] for each in now["workers"]] == [2, 2])
        config.write_text("tools: {x: {}}")
        async with http.post(f"{base}/-/reload") as response:
            assert response.status == 422
        async with http.get(f"{base}/-/ready") as response:
            assert (response.status, (await response.json())["ready"]) == (200, True)
        async with http.post(f"{base}/-/log-level?level=debug") as response:
            assert response.status == 200
        for _ in range(6):
            async with http.get(f"{base}/-/log-level") as response:
                assert (await response.json())["level"] == "debug"
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code(within=SECONDS) == 0
        logged = [orjson.loads(line) for line in daemon.errors]
        assert {entry["worker"] for entry in logged if entry["event"] == "reloaded"} == {0, 1}
        assert not [line for line in daemon.errors if "GET /status" in line]  # a request between the workers
        assert are_gone(processes)
        # SQLite can leave its -shm and -wal files if both workers close a database at the same time.
        names = {each.name.removesuffix("-shm").removesuffix("-wal") for each in (tmp_path / "state").iterdir()}
        assert names == {"lock", "secrets.sqlite", "signing-keys", "worker-0", "worker-1"}


@pytest.mark.build
async def test_killed_worker_is_replaced_and_calls_need_one_reconnect(config: Path, tmp_path: Path) -> None:
    async with workers(config, tmp_path) as (_, url), aiohttp.ClientSession() as http, fresh() as other:
        before = pids(await status(other, url))
        load = Load(url=url, http=http)
        running = asyncio.create_task(load.run(rate=40, seconds=4, clients=8, legacy=4))
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        after = await until(other, url, lambda now: len(pids(now)) == 2 and victim not in pids(now))
        await running
        assert load.counts.failures == []
        assert load.counts.answered == 160
        assert set(load.counts.initialized.values()) == {1}
        assert max(before) in pids(after)


@pytest.mark.build
@pytest.mark.parametrize(("state", "times"), [("state", 1), ("none", 2)])
async def test_workers_are_replaced_under_load_without_errors(
    config: Path, tmp_path: Path, state: str, times: int
) -> None:
    async with workers(config, tmp_path, state=state) as (daemon, url), fresh() as http, fresh() as other:
        before = pids(await status(other, url))
        load = Load(url=url, http=http)
        running = asyncio.create_task(load.run(rate=20, seconds=8, clients=8, legacy=4))
        daemon.signal(signal.SIGUSR2)
        if times > 1:  # during the first replacement, so that some workers are older than the second request
            await said(daemon, "replacing workers")
            daemon.signal(signal.SIGUSR2)
        calls = 0
        while sum(_event(line).get("event") == "workers replaced" for line in daemon.errors) < times:
            assert text_of(await post_call(other, url, "echo", text=str(calls))) == str(calls)
            calls += 1
        assert calls > 0
        await running
        assert (load.counts.failures, load.counts.answered) == ([], 160)
        assert set(load.counts.initialized.values()) == {1}, "states of one process are valid in its successors"
        after = await until(other, url, lambda now: len(pids(now)) == 2)
        assert not before & pids(after)
        assert are_gone(before)


@pytest.mark.build
async def test_stop_during_a_replacement_starts_no_worker(config: Path, tmp_path: Path) -> None:
    async with workers(config, tmp_path) as (daemon, _):
        daemon.signal(signal.SIGUSR2)
        assert "worker" in await said(daemon, "stopping")  # the first worker, which was replaced
        daemon.signal(signal.SIGTERM)
        assert await daemon.exit_code(within=SECONDS) == 0
    assert "supervisor failed" not in "".join(daemon.errors)


@pytest.mark.build
async def test_workers_end_when_their_supervisor_is_killed(config: Path, tmp_path: Path) -> None:
    async with workers(config, tmp_path) as (daemon, url), fresh() as http:
        processes = pids(await status(http, url))
        daemon.signal(signal.SIGKILL)
        async with asyncio.timeout(SECONDS):
            while not are_gone(processes):
                await asyncio.sleep(0.05)


@pytest.mark.build
async def test_hanging_worker_is_replaced(config: Path, tmp_path: Path) -> None:
    async with workers(config, tmp_path) as (daemon, url), fresh() as http:
        before = pids(await status(http, url))
        victim = min(before)
        os.kill(victim, signal.SIGSTOP)  # it still accepts connections, but does not respond
        killed = await said(daemon, "worker killed: no heartbeat")
        assert killed["process"] == victim
        after = await until(http, url, lambda now: len(pids(now)) == 2 and victim not in pids(now))
        assert max(before) in pids(after)
        assert text_of(await post_call(http, url, "echo", text="on")) == "on"


@pytest.mark.build
async def test_crashing_worker_is_restarted_with_backoff(config: Path, tmp_path: Path) -> None:
    async with workers(config, tmp_path) as (daemon, url), fresh() as http:
        place = min(pids(await status(http, url)))
        other = pids(await status(http, url)) - {place}
        for _ in range(3):
            os.kill(place, signal.SIGKILL)
            found = await until(http, url, lambda now: len(pids(now)) == 2 and place not in pids(now))  # noqa: B023
            (place,) = pids(found) - other
        ends = [each for line in daemon.errors if (each := _event(line)).get("event") == "worker ended"]
        assert [each["restart_seconds"] for each in ends] == [0.0, 1.0, 2.0]


@pytest.mark.build
async def test_workers_share_an_inherited_socket(config: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        async with redis_server(tmp_path / "redis") as store, fresh() as http:
            environment = {"MCP_GATEWAY_STORE": store.url, "MCP_GATEWAY_SECRET_KEY": KEY}
            flags = ("--workers", "2", "--state-dir", "none")
            for text in ("first", "second"):
                early = asyncio.create_task(post_call(http, url, "echo", text=text))  # waits in the queue of the socket
                async with serving(
                    config, *flags, sockets=[listening], environment=environment, is_forked=False
                ) as daemon:
                    await said(daemon, "workers ready")
                    assert text_of(await early) == text
                    assert len(pids(await status(http, url))) == 2
                    daemon.signal(signal.SIGTERM)
                    assert await daemon.exit_code(within=SECONDS) == 0


@pytest.mark.build
async def test_workers_support_tls_and_the_admin_listener(config: Path, tmp_path: Path) -> None:
    authority = Authority()
    authority.issue(tmp_path / "server.pem", tmp_path / "server.key")
    admin = free_port()
    listen = f'{{http: "127.0.0.1:0", admin: "127.0.0.1:{admin}", tls: {{cert: server.pem, key: server.key}}}}'
    config.write_text(config.read_text().replace('{http: "127.0.0.1:0"}', listen))
    async with workers(config, tmp_path) as (daemon, url):
        connector = aiohttp.TCPConnector(force_close=True, ssl=authority.trusting())
        async with aiohttp.ClientSession(connector=connector) as http, fresh() as operator:
            assert url.startswith("https://")
            own = f"http://127.0.0.1:{admin}/mcp"
            processes = pids(await status(operator, own))
            assert len(processes) == 2
            os.kill(min(processes), signal.SIGKILL)
            for _ in range(10):
                with suppress(aiohttp.ClientConnectionError):  # the connection was accepted by the killed worker
                    assert text_of(await post_call(http, url, "echo", text="x")) == "x"
            await until(operator, own, lambda now: len(pids(now)) == 2 and min(processes) not in pids(now))
            async with http.get(url.replace("/mcp", "/-/status")) as hidden:
                assert hidden.status == 404
            daemon.signal(signal.SIGTERM)
            assert await daemon.exit_code(within=SECONDS) == 0


def _event(line: str) -> Json:
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(line)
    return {}


@pytest.mark.parametrize(
    ("flags", "environment", "problem"),
    [
        (["--workers", "2"], {}, "--workers: several workers need a shared store"),
        (["--workers", "2", "--stdio"], {}, "--workers: workers cannot share standard input"),
        (["--workers", "0"], {}, "--workers: expected a number from 1 to 512, or auto"),
        ([], {"MCP_GATEWAY_WORKERS": "2"}, "MCP_GATEWAY_WORKERS: several workers need a shared store"),
    ],
)
async def test_workers_without_a_shared_store_are_rejected(
    config: Path, flags: list[str], environment: dict[str, str], problem: str
) -> None:
    async with serving(config, *flags, environment=environment) as daemon:
        assert await daemon.exit_code() == 2
    assert problem in "".join(daemon.errors)


@pytest.mark.build
async def test_invalid_file_is_reported_once(config: Path, tmp_path: Path) -> None:
    config.write_text("tools: {x: {}}")
    environment = {"MCP_GATEWAY_STORE": "redis://127.0.0.1:1", "MCP_GATEWAY_SECRET_KEY": KEY}
    async with serving(config, "--workers", "2", environment=environment, is_forked=False) as daemon:
        assert await daemon.exit_code(within=SECONDS) == 2
    assert "".join(daemon.errors).count("tools.x") == 1


def test_metrics_of_workers_are_combined_as_documented() -> None:
    texts = [
        f"""\
# TYPE mcp_gateway_calls_total counter
mcp_gateway_calls_total{{name="echo"}} {number}
# TYPE mcp_gateway_sessions gauge
mcp_gateway_sessions {number}
# TYPE mcp_gateway_config_generation gauge
mcp_gateway_config_generation {number}
# TYPE mcp_gateway_store_up gauge
mcp_gateway_store_up {number - 2}
"""
        for number in (2, 3)
    ]
    lines = metrics_of_all(texts, "text/plain")[0].decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'mcp_gateway_calls_total{name="echo"} 5.0',
        "mcp_gateway_sessions 5.0",
        "mcp_gateway_config_generation 3.0",
        "mcp_gateway_store_up 0.0",
    ]


def test_status_combines_workers_and_names_unresponsive_ones() -> None:
    one = {"pid": 1, "state": "stopping", "uptime_seconds": 9, "problems": ["a"], "sessions": 2, "refused": {"rate": 1}}
    limits = {"streams": {"used": 1, "limit": 10, "per_caller": 2}}
    client = {"client": "x 1", "era": "legacy", "revision": "r", "transport": "t"}
    clients = {"sessions": [{**client, "sessions": 2}]}
    one |= {"limits": limits, "clients": clients}
    other = {**one, "pid": 2, "state": "ready", "problems": ["a", "b"], "uptime_seconds": 3}
    found = status_of_all({0: one, 1: None, 2: other})
    assert (found["state"], found["sessions"], found["uptime_seconds"]) == ("ready", 4, 9)
    assert (found["problems"], found["refused"]) == (["a", "b"], {"rate": 2})
    assert found["limits"]["streams"] == {"used": 2, "limit": 20, "per_caller": 2}
    assert found["clients"]["sessions"] == [{**client, "sessions": 4}]
    assert [each["state"] for each in found["workers"]] == ["stopping", "unreachable", "ready"]
    ready = readiness_of_all([{"ready": False, **one}, {"ready": True, **other}])
    assert (ready["ready"], ready["state"], ready["problems"]) == (True, "ready", ["a", "b"])


def _sorted(lines: list[str]) -> list[str]:
    """Return the lines with sorted labels."""
    return [
        f"{name}{{{','.join(sorted(labels.split(',')))}}}{value}"
        for line in lines
        for name, brace, rest in [line.partition("{")]
        if brace
        for labels, _, value in [rest.partition("}")]
    ]
