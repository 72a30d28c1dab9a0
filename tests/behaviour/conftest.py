"""Daemons that serve `testdata/definitions.yaml`, and a client for each cell.

All tests share one daemon over HTTP and one per revision over stdio. Tests that change the state of a daemon, such as a
log level that cannot be unset, start a separate one with `new_client`.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import pytest_asyncio

from gateway.json_types import JsonObject
from gateway.wire import meta
from tests.behaviour.cells import STDIO, Cell
from tests.behaviour.client import NOTHING, SECONDS, Client, initialize_params
from tests.behaviour.daemons import serving
from tests.behaviour.wires import HttpWire, SseWire, StdioWire
from tests.conformance.suite import Suite, find_suite
from tests.conformance.wire_schemas import WireSchemas
from tests.e2e.daemon import Daemon

CONFIG: Final = Path(__file__).parent / "testdata" / "definitions.yaml"

NewClient = Callable[..., Awaitable[Client]]
"""Creates a client without a shared session: `await new_client(cell, capabilities={…}, initializes=True, daemon=…)`."""


@pytest.fixture(scope="session", autouse=True)
def _call_states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Create the directory in which tools of all processes record their state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_GATEWAY_TEST_CALL_STATES", str(tmp_path_factory.mktemp("call_states")))
        yield


@pytest.fixture(scope="session")
def schemas() -> WireSchemas | None:
    """The official schemas, or None if the conformance suite, which contains them, is not available."""
    suite = find_suite()
    if isinstance(suite, Suite):
        return WireSchemas(suite.schemas())
    assert os.environ.get("CI") != "true", suite
    return None


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def processes() -> AsyncIterator[AsyncExitStack]:
    """Processes and contexts that are closed at the end of the session."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def url(processes: AsyncExitStack) -> str:
    """The MCP endpoint of the shared daemon."""
    daemon = await processes.enter_async_context(serving(CONFIG))
    return await daemon.url()


@pytest.fixture(scope="session")
def pipes() -> dict[str, StdioWire]:
    """The shared processes over stdio, by revision."""
    return {}


@pytest_asyncio.fixture(loop_scope="session")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=4 * SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield session


@pytest_asyncio.fixture(loop_scope="session")
async def client(
    cell: Cell,
    pipes: dict[str, StdioWire],
    processes: AsyncExitStack,
    new_client: NewClient,
    schemas: WireSchemas | None,
) -> AsyncIterator[Client]:
    """The client of the cell, after its handshake."""
    if cell.binding != STDIO:
        yield await new_client(cell)
        return
    known = cell.revision in pipes
    if not known:
        pipes[cell.revision] = await _opened(None, processes)
    client = _peer(cell, pipes[cell.revision], schemas)
    if not known and not cell.is_modern:
        await _initialize(client)
        pipes[cell.revision].initialized = client.initialized
    yield client
    pipes[cell.revision].client = None
    assert client.problems == []


@pytest_asyncio.fixture(loop_scope="session")
async def new_client(url: str, http: aiohttp.ClientSession, schemas: WireSchemas | None) -> AsyncIterator[NewClient]:
    async with client_factory(url, http, schemas) as make:
        yield make


@asynccontextmanager
async def client_factory(
    url: str, http: aiohttp.ClientSession, schemas: WireSchemas | None
) -> AsyncIterator[NewClient]:
    """Create clients of a server at a URL."""
    made: list[Client] = []
    async with AsyncExitStack() as stack:

        async def make(
            cell: Cell,
            *,
            capabilities: JsonObject = NOTHING,
            initializes: bool = True,
            daemon: Daemon | None = None,
        ) -> Client:
            if cell.binding == STDIO:
                client = _peer(cell, await _opened(daemon, stack), schemas)
            else:
                client = Client(cell, schemas)
                endpoint = url if daemon is None else await daemon.url()
                client.wire = wire = (HttpWire if cell.is_http else SseWire)(endpoint, http, client)
                stack.push_async_callback(wire.close)
                await wire.open()
            if cell.is_modern:
                client.envelope[meta.META_CLIENT_CAPABILITIES] = dict(capabilities)
            elif initializes:
                await _initialize(client, capabilities)
            made.append(client)
            return client

        yield make
    assert [problem for client in made for problem in client.problems] == []


async def _opened(daemon: Daemon | None, stack: AsyncExitStack) -> StdioWire:
    """Return the pipes of a process. Without a daemon, a new one is started."""
    wire = StdioWire(await stack.enter_async_context(serving(CONFIG, "--stdio")) if daemon is None else daemon)
    wire.open()
    stack.push_async_callback(wire.close)
    return wire


def _peer(cell: Cell, wire: StdioWire, schemas: WireSchemas | None) -> Client:
    client = Client(cell, schemas)
    client.wire, wire.client = wire, client
    client.initialized = wire.initialized
    return client


async def _initialize(client: Client, capabilities: JsonObject = NOTHING) -> None:
    answer = await client.ask("initialize", initialize_params(client.cell.revision, capabilities))
    client.initialized = answer.result
    await client.notify("notifications/initialized")
