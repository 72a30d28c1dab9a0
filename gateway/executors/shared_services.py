from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec

from gateway.background_tasks import BackgroundTasks
from gateway.executors.cache import MAX_BYTES, ResponseCache
from gateway.executors.output.output_store import OutputStore
from gateway.executors.output.size_limit import OutputCounters
from gateway.executors.sql.pools import DatabasePools
from gateway.net.clients import HttpClients
from gateway.net.outbound_tokens import OutboundTokens
from gateway.net.sign_ins import SignIns
from gateway.processes.processes import Processes
from gateway.threads import DaemonThreadPool

_THREADS: Final = 32


class Services(msgspec.Struct, frozen=True, kw_only=True):
    processes: Processes = msgspec.field(default_factory=Processes)
    http: HttpClients = msgspec.field(default_factory=HttpClients)
    threads: DaemonThreadPool = msgspec.field(default_factory=lambda: DaemonThreadPool(_THREADS))
    """Runs plugin functions. `limits.threads` replaces the default number of threads."""
    cache: ResponseCache = msgspec.field(default_factory=lambda: ResponseCache(MAX_BYTES))
    output_store: OutputStore = msgspec.field(default_factory=OutputStore)
    outbound_tokens: OutboundTokens = msgspec.field(default_factory=OutboundTokens)
    sign_ins: SignIns = msgspec.field(default_factory=SignIns)
    databases: DatabasePools = msgspec.field(default_factory=DatabasePools)
    output_counters: OutputCounters = msgspec.field(default_factory=OutputCounters)
    hook_threads: DaemonThreadPool = msgspec.field(default_factory=lambda: DaemonThreadPool(_THREADS))
    """Runs `startup()` and `shutdown()` of plugins. Separate, so that hanging functions do not block a reload."""
    worker_threads: DaemonThreadPool = msgspec.field(default_factory=lambda: DaemonThreadPool(_THREADS))
    """Runs blocking work of the daemon, such as reading files and shaping large outputs."""

    @property
    def plugin_threads_busy(self) -> int:
        return self.threads.busy + self.hook_threads.busy

    @property
    def plugin_threads_stuck(self) -> int:
        return self.threads.stuck + self.hook_threads.stuck


@asynccontextmanager
async def running_services(*, threads: int = _THREADS) -> AsyncIterator[Services]:
    tokens, tasks = OutboundTokens(), BackgroundTasks()
    services = Services(
        threads=DaemonThreadPool(threads), outbound_tokens=tokens, sign_ins=SignIns(secrets=tokens.secrets)
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(tasks.cancel)
        stack.push_async_callback(services.sign_ins.close)
        tasks.begin(services.sign_ins.sweep(), name="sign users out after idle")
        tasks.begin(services.output_store.expire(), name="expire outputs")
        for part in (services.processes, services.http, services.threads, services.databases, tokens):
            await stack.enter_async_context(part)
        await stack.enter_async_context(services.hook_threads)
        await stack.enter_async_context(services.worker_threads)
        yield services
