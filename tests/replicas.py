"""Daemons that share state through Redis, behind an nginx that uses them in turn."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from tests.e2e.daemon import Daemon, serving
from tests.interop.nginx import Nginx, nginx
from tests.ports import free_port
from tests.redis_server import RedisServer, redis_server

KEY: Final = "a key that all replicas share"
START_SECONDS: Final = 90
"""Long enough for three daemons that start at once with all imports, on a busy machine."""
NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(kw_only=True)
class Replica:
    """A running or killed daemon."""

    config: Path
    address: str
    flags: Sequence[str]
    environment: Mapping[str, str]
    watch: bool
    launcher: Sequence[str] = ()
    _running: AsyncExitStack = field(default_factory=AsyncExitStack)
    _daemon: Daemon | None = None

    @property
    def daemon(self) -> Daemon:
        assert self._daemon is not None, "the replica was killed"
        return self._daemon

    @property
    def url(self) -> str:
        """The URL of this replica, without a path."""
        return f"http://{self.address}"

    async def start(self) -> None:
        self._daemon = await self._running.enter_async_context(
            serving(
                self.config,
                *("--http", self.address, *self.flags),
                watch=self.watch,
                environment=self.environment,
                launcher=self.launcher,
            )
        )
        listening = await self._daemon.event("listening", within=START_SECONDS)
        self.address = urlsplit(listening["url"]).netloc  # keeps a port that the system assigned

    async def kill(self) -> None:
        self._daemon = None
        await self._running.aclose()


@dataclass(kw_only=True)
class Replicas:
    """All replicas, their store and their proxy."""

    redis: RedisServer
    proxy: Nginx
    all: Sequence[Replica]


@asynccontextmanager
async def replicas(
    config: Path,
    *flags: str,
    count: int = 3,
    watch: bool = False,
    environment: Mapping[str, str] = NO_OPTIONS,
    first_flags: Sequence[str] = (),
    redis_options: Sequence[str] = (),
) -> AsyncIterator[Replicas]:
    """Serve a file with several daemons. Only the first daemon gets `first_flags`."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcp-gateway-replicas-")))
        redis = await stack.enter_async_context(redis_server(folder / "redis", *redis_options))
        made = [
            Replica(
                config=config,
                address=f"127.0.0.1:{free_port()}",
                flags=(*flags, *(() if number else first_flags)),
                environment={**environment, "MCP_GATEWAY_STORE": redis.url, "MCP_GATEWAY_SECRET_KEY": KEY},
                watch=watch,
            )
            for number in range(count)
        ]
        for each in made:
            stack.push_async_callback(each.kill)
        await asyncio.gather(*(each.start() for each in made))
        proxy = await stack.enter_async_context(nginx_in_turn(folder / "nginx", [each.address for each in made]))
        yield Replicas(redis=redis, proxy=proxy, all=made)


@asynccontextmanager
async def nginx_in_turn(folder: Path, addresses: Sequence[str], **options: Any) -> AsyncIterator[Nginx]:
    """Run nginx with the shipped file, in front of these addresses. `options` are passed to `nginx`."""
    folder.mkdir()
    async with nginx(folder, daemon=" fail_timeout=2s; server ".join(addresses), **options) as proxy:
        yield proxy
