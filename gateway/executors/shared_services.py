from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec

from gateway.background_tasks import BackgroundTasks
from gateway.executors.cache import MAX_BYTES, ResponseCache
from gateway.executors.output.output_store import OutputStore
from gateway.executors.output.size_limit import OutputCounters
from gateway.executors.shell.scratch import Scratch
from gateway.executors.sql.pools import DatabasePools
from gateway.net.clients import HttpClients
from gateway.net.outbound_tokens import OutboundTokens
from gateway.net.sign_ins import SignIns
from gateway.processes.processes import Processes
from gateway.threads import DaemonThreadPool

_HOOK_THREADS: Final = 32
_WORKER_THREADS: Final = 32


class Services(msgspec.Struct, frozen=True, kw_only=True):
    processes: Processes
    http: HttpClients
    threads: DaemonThreadPool
    """Runs plugin functions, which can hang (`limits.threads`)."""
    cache: ResponseCache = msgspec.field(default_factory=lambda: ResponseCache(MAX_BYTES))
    output_store: OutputStore
    outbound_tokens: OutboundTokens = msgspec.field(default_factory=OutboundTokens)
    sign_ins: SignIns = msgspec.field(default_factory=SignIns)
    databases: DatabasePools = msgspec.field(default_factory=DatabasePools)
    output_counters: OutputCounters = msgspec.field(default_factory=OutputCounters)
    scratch: Scratch = msgspec.field(default_factory=Scratch)
    hook_threads: DaemonThreadPool = msgspec.field(default_factory=lambda: DaemonThreadPool(_HOOK_THREADS))
    """Runs `startup()` and `shutdown()` of plugins, so that a reload works even if functions hang."""
    worker_threads: DaemonThreadPool = msgspec.field(default_factory=lambda: DaemonThreadPool(_WORKER_THREADS))
    """Runs blocking work of the daemon: files, directories, large outputs."""

    @property
    def plugin_threads_busy(self) -> int:
        return self.threads.busy + self.hook_threads.busy

    @property
    def plugin_threads_stuck(self) -> int:
        return self.threads.stuck + self.hook_threads.stuck


@asynccontextmanager
async def running_services(*, threads: int = 32) -> AsyncIterator[Services]:
    async with AsyncExitStack() as stack:
        scratch = await stack.enter_async_context(Scratch())  # first, because it must be closed last
        output_store, tasks, outbound_tokens = OutputStore(), BackgroundTasks(), OutboundTokens()
        sign_ins = SignIns(secrets=outbound_tokens.secrets)
        stack.push_async_callback(tasks.cancel)
        stack.push_async_callback(sign_ins.close)
        tasks.begin(sign_ins.sweep(), name="sign users out after idle")
        tasks.begin(output_store.expire(), name="expire outputs")
        yield Services(
            scratch=scratch,
            processes=await stack.enter_async_context(Processes()),
            http=await stack.enter_async_context(HttpClients()),
            threads=await stack.enter_async_context(DaemonThreadPool(threads)),
            output_store=output_store,
            databases=await stack.enter_async_context(DatabasePools()),
            sign_ins=sign_ins,
            outbound_tokens=await stack.enter_async_context(outbound_tokens),
            hook_threads=await stack.enter_async_context(DaemonThreadPool(_HOOK_THREADS)),
            worker_threads=await stack.enter_async_context(DaemonThreadPool(_WORKER_THREADS)),
        )
