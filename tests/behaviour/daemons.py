"""Daemons of the behaviour tests: a single one, or replicas.

With MCP_GATEWAY_TEST_REPLICAS=3, each HTTP daemon is replaced by three daemons with one Redis, behind an nginx without
stickiness. Clients must not see a difference. Standard streams belong to the first of these daemons.
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
from tests.e2e.daemon import PATIENCE_SECONDS, Daemon
from tests.e2e.daemon import serving as serving_alone
from tests.replicas import Replicas, replicas

COUNT: Final = int(os.environ.get("MCP_GATEWAY_TEST_REPLICAS", "1"))
_STREAMS: Final = "--stdio"


@dataclass(kw_only=True)
class ManyDaemons(Daemon):
    """Replicas, as if they were one daemon: their proxy's URL, and the standard streams of the first."""

    replicas: Replicas

    async def url(self) -> str:
        return f"{self.replicas.proxy.url}/mcp"

    def signal(self, number: signal.Signals) -> None:
        for each in self.replicas.all:
            each.daemon.signal(number)

    async def event(self, name: str, *, within: float = PATIENCE_SECONDS) -> Json:
        """The first log line of that name that the last of them has written."""
        return [await each.daemon.event(name, within=within) for each in self.replicas.all][-1]

    @property
    def own_urls(self) -> Sequence[str]:
        return [each.url for each in self.replicas.all]


async def own_urls(daemon: Daemon) -> Sequence[str]:
    """The addresses of each process, without a path, for operators who query one process at a time."""
    return daemon.own_urls if isinstance(daemon, ManyDaemons) else [(await daemon.url()).removesuffix("/mcp")]


@asynccontextmanager
async def serving(config: Path, *flags: str, watch: bool = False) -> AsyncIterator[Daemon]:
    """A daemon, or replicas of it where it listens for HTTP and there are to be several."""
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
    """Mark a test of what holds for each process by itself."""
    return pytest.mark.skipif(COUNT > 1, reason=f"of one process: {why}")
