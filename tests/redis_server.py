"""Redis servers for tests, on free ports, each with a separate directory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import redis.asyncio as redis

from tests.ports import free_port
from tests.programs import need

SECONDS: Final = 30
SLOTS: Final = 16384
SERVICE: Final = "mymaster"
"""The name of the master for Sentinels."""


@dataclass(kw_only=True)
class RedisServer:
    """A running or stopped server."""

    folder: Path
    port: int
    arguments: Sequence[str]
    process: asyncio.subprocess.Process | None = None
    password: str = ""
    address: str = "127.0.0.1"
    launcher: Sequence[str] = ()
    _clients: list["redis.Redis"] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"redis://{f':{self.password}@' if self.password else ''}{self.address}:{self.port}"

    @property
    def client(self) -> "redis.Redis":
        """A client for inspecting the stored data."""
        if not self._clients:
            self._clients.append(redis.Redis(host=self.address, port=self.port, password=self.password or None))
        return self._clients[0]

    async def start(self) -> None:
        program = need("redis-server")
        with (self.folder / "log").open("a") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(*self.launcher, program, *self.arguments), cwd=self.folder, stdout=log, stderr=log
            )
        async with asyncio.timeout(SECONDS):
            while not await self._responds():
                assert self.process.returncode is None, (self.folder / "log").read_text()

    async def stop(self) -> None:
        """Kill the server, as a power failure would."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        await self.stop()

    async def _responds(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection(self.address, self.port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
            return False
        writer.write(b"PING\r\n")
        answer = await reader.readline()
        writer.close()
        if answer.startswith(b"-LOADING"):
            await asyncio.sleep(0.02)
            return False
        return True


@asynccontextmanager
async def redis_server(
    folder: Path, *options: str, password: str = "", address: str = "127.0.0.1", launcher: Sequence[str] = ()
) -> AsyncIterator[RedisServer]:
    """Run a server. `launcher` is the start of its command, for example to run it on another host."""
    if password:
        options = (*options, "--requirepass", password)
    port = free_port()
    own = ("--port", str(port), "--bind", address, "--protected-mode", "no", "--save", "", "--appendonly", "no")
    made = RedisServer(
        folder=folder,
        port=port,
        arguments=(*own, *options),
        password=password,
        address=address,
        launcher=launcher,
    )
    async with _running(made) as server:
        yield server


@asynccontextmanager
async def redis_cluster(folder: Path, *, count: int = 3) -> AsyncIterator[list[RedisServer]]:
    """Run a cluster whose nodes have equal shares of the slots."""
    async with AsyncExitStack() as stack:
        buses = [free_port() for _ in range(count)]
        nodes = [
            await stack.enter_async_context(
                redis_server(folder / str(bus), "--cluster-enabled", "yes", "--cluster-port", str(bus))
            )
            for bus in buses
        ]
        bounds = [SLOTS * each // count for each in range(count + 1)]
        for number, node in enumerate(nodes):
            await node.client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)  # type: ignore[no-untyped-call]
            last = bounds[number + 1] - 1
            await node.client.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[number], last)  # type: ignore[no-untyped-call]
            await node.client.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port, buses[0])  # type: ignore[no-untyped-call]
        async with asyncio.timeout(SECONDS):
            while not all([await _knows_all(node, count) for node in nodes]):
                await asyncio.sleep(0.05)
        yield nodes


@dataclass(frozen=True, kw_only=True)
class Sentinels:
    """Three Sentinels and the two servers that they monitor."""

    servers: Sequence[RedisServer]
    sentinels: Sequence[RedisServer]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    async def master(self) -> RedisServer:
        """Return the current master according to the Sentinels."""
        _, port = await self.sentinels[0].client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)  # type: ignore[no-untyped-call]
        return next(each for each in self.servers if each.port == int(port))


@asynccontextmanager
async def redis_sentinels(folder: Path) -> AsyncIterator[Sentinels]:
    """Run a master, a replica, and three Sentinels that have found both servers."""
    async with AsyncExitStack() as stack:
        master = await stack.enter_async_context(redis_server(folder / "master", "--appendonly", "yes"))
        replica = await stack.enter_async_context(
            redis_server(folder / "replica", "--replicaof", "127.0.0.1", str(master.port))
        )
        sentinels = [
            await stack.enter_async_context(_sentinel(folder / f"sentinel{each}", master)) for each in range(3)
        ]
        async with asyncio.timeout(SECONDS):
            while not all([await _sees_all(each) for each in sentinels]):
                await asyncio.sleep(0.05)
        yield Sentinels(servers=(master, replica), sentinels=sentinels)


@asynccontextmanager
async def _sentinel(folder: Path, master: RedisServer) -> AsyncIterator[RedisServer]:
    folder.mkdir(parents=True)
    port = free_port()
    watched = (
        f"monitor {SERVICE} 127.0.0.1 {master.port} 2",
        f"down-after-milliseconds {SERVICE} 1000",
        f"failover-timeout {SERVICE} 5000",
    )
    lines = [f"port {port}", "bind 127.0.0.1", *(f"sentinel {each}" for each in watched)]
    (folder / "sentinel.conf").write_text("\n".join(lines) + "\n")
    server = RedisServer(folder=folder, port=port, arguments=("sentinel.conf", "--sentinel"))
    async with _running(server):
        yield server


async def _sees_all(sentinel: RedisServer) -> bool:
    found = await sentinel.client.execute_command("SENTINEL", "MASTER", SERVICE)  # type: ignore[no-untyped-call]
    facts = dict(zip(*[iter(found)] * 2, strict=True)) if isinstance(found, list) else found
    facts = {name.decode() if isinstance(name, bytes) else name: value for name, value in facts.items()}
    return (int(facts["num-slaves"]), int(facts["num-other-sentinels"])) == (1, 2)


async def _knows_all(node: RedisServer, count: int) -> bool:
    found = (await node.client.execute_command("CLUSTER", "INFO")).decode().split()  # type: ignore[no-untyped-call]
    return {"cluster_state:ok", f"cluster_size:{count}"} <= set(found)


@asynccontextmanager
async def _running(server: RedisServer) -> AsyncIterator[RedisServer]:
    server.folder.mkdir(parents=True, exist_ok=True)
    try:
        await server.start()
        yield server
    finally:
        await server.close()
