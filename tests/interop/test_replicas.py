"""No call is lost while replicas and Redis fail.

Three replicas share a Redis behind an nginx without sticky sessions. Each replica is killed, restarted, disconnected
and reconnected in turn. Redis is killed and restarted. During this time, both versions of the official client and
clients without a library use every feature. A failed step is retried once.

MCP_GATEWAY_TEST_CYCLES=20 repeats this twenty times. `-s` shows the counts of calls.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.interop.official_clients import DRIVERS, PROJECT, interpreter
from tests.interop.raw_client import RawClient
from tests.network import Host, network
from tests.redis_server import RedisServer, redis_server
from tests.replicas import KEY, Replica, nginx_in_turn

pytestmark = pytest.mark.build

CYCLES: Final = int(os.environ.get("MCP_GATEWAY_TEST_CYCLES", "1"))
SECONDS: Final = 400 * CYCLES
ROUND_SECONDS: Final = 120
PATIENCE: Final = 8
"""The timeout of the official clients in seconds."""
TESTDATA: Final = PROJECT / "tests" / "behaviour" / "testdata"
PORT: Final = 8080
CLIENTS: Final = (("python-1x", 1, "legacy"), ("python-2x", 2, "legacy"), ("python-2x-modern", 2, "auto"))
SYSTEM: Final = {
    "net.ipv4.tcp_retries2": "3",
    "net.ipv4.tcp_keepalive_time": "3",
    "net.ipv4.tcp_keepalive_intvl": "1",
    "net.ipv4.tcp_keepalive_probes": "3",
}
"""Kernel parameters to detect within seconds that a host is down (docs/guides/scale-out.md)."""
CONFIG: Final = """\
plugins: ["{testdata}/plugins", "{testdata}/asking/plugins", plugins]
listen: {{public_url: "http://{edge}:{port}", trusted_proxies: ["{edge}"]}}
tools:
  here: {{description: Return a text., content: here}}
  say: {{description: Repeat., input: {{text: string}}, content: "You said {{{{ text }}}}."}}
  named: {{python: "questions:named"}}
  count: {{python: "controlled:count"}}
  talk: {{python: "controlled:talk"}}
  wait: {{python: "controlled:wait", timeout: 30s}}
  reach: {{python: "controlled:reach"}}
  release: {{python: "controlled:release"}}
  touch: {{python: "controlled:touch"}}
  work:
    annotations: {{idempotent: true}}
    python: "working:work"
    task: {{mode: optional, restart: 3}}
  work_once: {{python: "working:work", task: optional}}
resources:
  note: {{uri: "test://note", text: Remember.}}
"""
PLUGIN: Final = '''\
import asyncio
import fcntl
import os
from pathlib import Path

FOLDER = Path(os.environ["MCP_GATEWAY_TEST_CALL_STATES"])


async def work(key: str) -> str:
    """Work for a while, alone: a killed process loses its lock."""
    with (FOLDER / key).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (FOLDER / "twice at once").write_text(key)
            raise
        await asyncio.sleep(1)
    return "done"
'''


@dataclass(kw_only=True)
class OfficialClient:
    """An official client in a separate process, and its last report."""

    name: str
    process: asyncio.subprocess.Process
    seen: Mapping[str, Any] = field(default_factory=dict)
    _reported: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def rounds(self) -> int:
        return self.counts["rounds"]

    @property
    def counts(self) -> Counter[str]:
        return Counter({name: value for name, value in self.seen.items() if isinstance(value, int)})

    @property
    def lost(self) -> list[str]:
        return list(self.seen.get("lost", ()))

    async def until(self, rounds: int) -> None:
        async with asyncio.timeout(ROUND_SECONDS), self._reported:
            await self._reported.wait_for(lambda: self.rounds >= rounds or self.process.returncode is not None)
        assert self.rounds >= rounds, self.name

    async def knows(self, tool: str) -> None:
        async with asyncio.timeout(ROUND_SECONDS), self._reported:
            await self._reported.wait_for(lambda: tool in self.seen.get("tools", ()))

    async def listen(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            async with self._reported:
                self.seen = json.loads(line)
                self._reported.notify_all()

    async def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"{}\n")
        async with asyncio.timeout(ROUND_SECONDS):
            await self.process.wait()


@asynccontextmanager
async def official(name: str, *, line: int, mode: str, url: str, errors: Path) -> AsyncIterator[OfficialClient]:
    pipe = asyncio.subprocess.PIPE
    with errors.open("w") as file:
        process = await asyncio.create_subprocess_exec(
            *(interpreter(line), str(DRIVERS / f"endure_{line}x.py")),
            stdin=pipe,
            stdout=pipe,
            stderr=file,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
        )
    plan = {"name": name, "binding": "http", "url": url, "mode": mode, "patience": PATIENCE}
    assert process.stdin is not None
    process.stdin.write(json.dumps(plan).encode() + b"\n")
    client = OfficialClient(name=name, process=process)
    listening = asyncio.create_task(client.listen())
    try:
        yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening


@dataclass(frozen=True, kw_only=True)
class Site:
    """All hosts and their processes."""

    replicas: Sequence[Replica]
    hosts: Sequence[Host]
    redis: RedisServer
    url: str
    config: Path

    def offer(self, tool: str) -> None:
        """Add a tool."""
        new = self.config.with_suffix(".new")
        new.write_text(self.config.read_text().replace("resources:", f"  {tool}: {{content: new}}\nresources:"))
        new.replace(self.config)


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        edge, store, *hosts = await stack.enter_async_context(network(5))
        config = folder / "config.yaml"
        config.write_text(CONFIG.format(testdata=TESTDATA, edge=edge.address, port=PORT))
        (folder / "plugins").mkdir()
        (folder / "plugins" / "working.py").write_text(PLUGIN)
        (folder / "courses").mkdir()
        redis = await stack.enter_async_context(
            redis_server(folder / "redis", "--appendonly", "yes", address=store.address, launcher=store.launcher)
        )
        environment = {
            "MCP_GATEWAY_STORE": redis.url,
            "MCP_GATEWAY_SECRET_KEY": KEY,
            "MCP_GATEWAY_TEST_CALL_STATES": str(folder / "courses"),
        }
        replicas = [
            Replica(
                config=config,
                address=f"{host.address}:8000",
                flags=("--allow-anonymous",),
                environment=environment,
                watch=True,
                launcher=host.launcher,
            )
            for host in hosts
        ]
        for each in replicas:
            stack.push_async_callback(each.kill)
        await asyncio.gather(*(each.start() for each in replicas))
        for name, value in SYSTEM.items():
            await edge.set(name, value)
        addresses = [each.address for each in replicas]
        proxy = await stack.enter_async_context(
            nginx_in_turn(folder / "nginx", addresses, address=edge.address, port=PORT, launcher=edge.launcher)
        )
        yield Site(replicas=replicas, hosts=hosts, redis=redis, url=f"{proxy.url}/mcp", config=config)


async def test_no_message_is_lost_while_replicas_and_redis_fail(tmp_path: Path) -> None:
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        at = await stack.enter_async_context(site(tmp_path))
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)))
        others = [
            await stack.enter_async_context(
                official(name, line=line, mode=mode, url=at.url, errors=tmp_path / f"{name}.log")
            )
            for name, line, mode in CLIENTS
        ]
        raw = [RawClient(at.url, http, name=f"raw {number}") for number in range(2)]
        clients: list[OfficialClient | RawClient] = [*others, *raw]
        working = [asyncio.create_task(each.go_on()) for each in raw]
        try:
            for cycle in range(CYCLES):
                await fail_in_turn(at, clients, cycle=cycle)
                await asyncio.gather(*(each.knows(f"restarted_{cycle}") for each in others))
            for client in raw:
                client.stop()
            await asyncio.gather(*working, *(each.end() for each in others))
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            for each in clients:
                print(each.name, dict(each.counts), each.lost)  # noqa: T201 - shown by `pytest -s`
        assert [each.lost for each in clients] == [[]] * len(clients)
        assert all(each.counts["answered"] == each.counts["made"] for each in clients)
    assert not (tmp_path / "courses" / "twice at once").exists()


async def fail_in_turn(at: Site, clients: Sequence[OfficialClient | RawClient], *, cycle: int) -> None:
    """Kill each replica, disconnect each replica, and restart Redis, with a round of every client after each step."""

    async def a_round() -> None:
        await asyncio.gather(*(each.until(each.rounds + 1) for each in clients))

    await a_round()
    for replica in at.replicas:
        await replica.kill()
        await a_round()
        await replica.start()
    at.offer(f"killed_{cycle}")
    for host in at.hosts:
        await host.disconnect()
        await a_round()
        await host.reconnect()
    await at.redis.stop()
    await at.redis.start()
    await a_round()
    at.offer(f"restarted_{cycle}")
