"""Daemons of the behaviour tests: a single one, or replicas.

With MCP_GATEWAY_TEST_REPLICAS=3, each HTTP daemon is replaced by three daemons with one Redis, behind an nginx without
sticky sessions. Clients must not notice a difference. The first daemon uses the standard streams.
"""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from gateway.json_types import Json
from tests.e2e.daemon import TIMEOUT_SECONDS, Daemon
from tests.e2e.daemon import serving as serving_alone
from tests.replicas import Replicas, replicas

COUNT: Final = int(os.environ.get("MCP_GATEWAY_TEST_REPLICAS", "1"))
_STREAMS: Final = "--stdio"


@dataclass(kw_only=True)
class ManyDaemons(Daemon):
    """Replicas with the interface of one daemon: the URL of their proxy, and the standard streams of the first one."""

    replicas: Replicas

    async def url(self) -> str:
        return f"{self.replicas.proxy.url}/mcp"

    def signal(self, number: signal.Signals) -> None:
        for each in self.replicas.all:
            each.daemon.signal(number)

    async def event(self, name: str, *, within: float = TIMEOUT_SECONDS) -> Json:
        """Wait until all replicas have logged an event, and return that of the last one."""
        return [await each.daemon.event(name, within=within) for each in self.replicas.all][-1]

    @property
    def own_urls(self) -> Sequence[str]:
        return [each.url for each in self.replicas.all]


async def own_urls(daemon: Daemon) -> Sequence[str]:
    """Return the URLs of the single processes, without a path."""
    return daemon.own_urls if isinstance(daemon, ManyDaemons) else [(await daemon.url()).removesuffix("/mcp")]


@asynccontextmanager
async def serving(config: Path, *flags: str, watch: bool = False) -> AsyncIterator[Daemon]:
    """Run a daemon, or replicas if they are enabled and the daemon listens for HTTP."""
    if COUNT == 1 or (_STREAMS in flags and "--http" not in flags):
        async with serving_alone(config, *flags, watch=watch) as daemon:
            yield daemon
        return
    of_all = [each for each in _without_address(flags) if each != _STREAMS]
    first_flags = [_STREAMS] if _STREAMS in flags else []
    async with replicas(config, *of_all, count=COUNT, watch=watch, first_flags=first_flags) as running:
        yield ManyDaemons(process=running.all[0].daemon.process, replicas=running)


def _without_address(flags: Sequence[str]) -> list[str]:
    at = flags.index("--http") if "--http" in flags else len(flags)
    return [*flags[:at], *flags[at + 2 :]]


def one_process(why: str) -> pytest.MarkDecorator:
    """Mark a test that needs a single process."""
    return pytest.mark.skipif(COUNT > 1, reason=f"of one process: {why}")
