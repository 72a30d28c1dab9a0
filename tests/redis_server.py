"""A real redis-server of a test's own, on a free port, with its files in a directory of its own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import redis.asyncio as redis

from tests.ports import free_port
from tests.programs import need

SECONDS: Final = 30


@dataclass(kw_only=True)
class RedisServer:
    """One that runs, or has been stopped."""

    folder: Path
    port: int
    options: Sequence[str] = ()
    process: asyncio.subprocess.Process | None = None
    password: str = ""
    _clients: list["redis.Redis"] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"redis://{f':{self.password}@' if self.password else ''}127.0.0.1:{self.port}"

    @property
    def client(self) -> "redis.Redis":
        """A client for a look at what is stored."""
        if not self._clients:
            self._clients.append(redis.Redis(host="127.0.0.1", port=self.port, password=self.password or None))
        return self._clients[0]

    async def start(self) -> None:
        program = need("redis-server")
        with (self.folder / "log").open("a") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                *("--save", "", "--appendonly", "no", *self.options),
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(SECONDS):
            while not await self._answers():
                assert self.process.returncode is None, (self.folder / "log").read_text()

    async def stop(self) -> None:
        """As hard as a machine that loses its power."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        await self.stop()

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
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
async def redis_server(folder: Path, *options: str, password: str = "") -> AsyncIterator[RedisServer]:
    folder.mkdir(parents=True, exist_ok=True)
    if password:
        options = (*options, "--requirepass", password)
    server = RedisServer(folder=folder, port=free_port(), options=options, password=password)
    await server.start()
    try:
        yield server
    finally:
        await server.close()
