"""What executors share and the app owns: processes, connections, threads, cached and parked outputs."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from gateway.executors.cache import ResponseCache
from gateway.executors.http.clients import HttpClients
from gateway.executors.output.overflows import Overflows
from gateway.executors.output.parking import ParkedOutputs
from gateway.executors.shell.processes import Processes
from gateway.executors.shell.sandbox_probe import SandboxProbe
from gateway.executors.threads import Threads


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Outlives every catalog; a catalog's executors only borrow."""

    processes: Processes
    http: HttpClients
    threads: Threads
    cache: ResponseCache
    parked: ParkedOutputs
    overflows: Overflows = field(default_factory=Overflows)
    sandboxes: SandboxProbe = field(default_factory=SandboxProbe)


@asynccontextmanager
async def running_services(*, threads: int = 32) -> AsyncIterator[Services]:
    """Start the services; at the end stop them, the last started first."""
    async with AsyncExitStack() as stack:
        yield Services(
            processes=await stack.enter_async_context(Processes()),
            http=await stack.enter_async_context(HttpClients()),
            threads=await stack.enter_async_context(Threads(threads)),
            cache=ResponseCache(),
            parked=ParkedOutputs(),
        )
