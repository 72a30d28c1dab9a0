"""The console's part of the daemon: what records for it, and what its API asks."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from gateway.app.components import Components
from gateway.app.monitoring.daemon_info import endpoint_url
from gateway.app.workers.all_workers import AllWorkers
from gateway.config.models.server import ConsolePage
from gateway.console.api.activity import ActivityApi
from gateway.console.api.catalog import CatalogApi
from gateway.console.api.config import ConfigApi, ConfigFileReader
from gateway.console.api.explain import ExplainApi
from gateway.console.api.mcp import McpApi
from gateway.console.api.overview import OverviewApi, snippets
from gateway.console.console import WebConsole
from gateway.console.console_access import ConsoleAccess, PrintedToken
from gateway.console.daemon import Daemon
from gateway.console.recording.call_rates import CallRates
from gateway.console.recording.recorded_calls import RecordedCalls
from gateway.console.recording.sequence_numbers import SequenceNumbers
from gateway.console.recording.task_progress import TaskProgress
from gateway.console.session_cookie import SessionCookies
from gateway.console.static_files import read_static_files
from gateway.json_types import Json, JsonObject
from gateway.state.keys import SigningKeys
from gateway.tasks.runner import TaskProgressed
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.telemetry.observer import Observer
from gateway.transports.http.admin_api import OPERATORS
from gateway.transports.http.request import HttpRequest


class ConsoleSetup:
    """Makes the console of one daemon."""

    def __init__(self, page: ConsolePage, *, worker: int, shared_keys: SigningKeys | None) -> None:
        """Record nothing yet.

        Args:
            page: the key `listen.console`.
            worker: the number of this process among those that serve the same.
            shared_keys: the signing keys that other workers and replicas have as well, if any do.
        """
        self._page: Final = page
        self._shared_keys: Final = shared_keys
        self._calls: Final = RecordedCalls(SequenceNumbers(worker=worker), rates=CallRates())
        self._activity: ActivityApi | None = None
        self._console: WebConsole
        self.task_progress: Final = TaskProgress()
        self.observers: Final[Sequence[Observer]] = (self._calls,)
        """Called for each request, for what the console shows of them."""

    def console(
        self,
        components: Components,
        *,
        health: Health,
        logs: Logs,
        workers: AllWorkers | None,
    ) -> WebConsole:
        """Make the console.

        Args:
            components: those of the daemon, once it is loaded.
            health: that of the daemon.
            logs: its log lines are shown with the calls that wrote them.
            workers: all of the daemon, if it has several.
        """
        logs.heard = self._calls.heard
        daemon = _daemon(components, health, workers)
        self._activity = activity = ActivityApi(daemon, self._calls, events=components.events)
        if workers is not None:
            workers.console = activity.own.answer
        components.events.subscribe(TaskProgressed, self.task_progress.record)
        files = ConfigFileReader(daemon)
        groups = (
            activity,
            OverviewApi(daemon, rates=activity.rates, clients=partial(_clients, components)),
            CatalogApi(daemon, files),
            ExplainApi(daemon),
            ConfigApi(daemon, files, reloads=activity.reloads),
            McpApi(daemon),
        )
        self._console = console = WebConsole(
            access=ConsoleAccess(
                authenticator=components.authenticator,
                scopes=self._page.scopes,
                operators=OPERATORS,
                token=PrintedToken(self._shared_keys),
                cookies=SessionCookies(components.state.keys, clock=components.state.clock),
            ),
            files=read_static_files(),
            routes=[route for group in groups for route in group.routes()],
        )
        return console

    def link(self, base_url: str) -> str:
        """Return the URL of the page: see `WebConsole.link`."""
        return self._console.link(base_url)

    def drain(self) -> None:
        """End the streams of events: the daemon stops."""
        if self._activity is not None:
            self._activity.drain()

    async def close(self) -> None:
        if self._activity is not None:
            await self._activity.close()


def _daemon(components: Components, health: Health, workers: AllWorkers | None) -> Daemon:
    async def status() -> JsonObject:
        own = health.status()
        return own if workers is None else await workers.status(own)

    return Daemon(
        pipeline=components.pipeline,
        reloader=components.reloader,
        dispatcher=components.dispatcher,
        services=components.services,
        upstreams=lambda: components.upstreams.servers,
        http=lambda: components.http,
        open_sessions=components.open_sessions,
        state=lambda: health.state,
        status=status,
        ask_others=_nobody if workers is None else workers.ask_console,
    )


async def _nobody(_method: str, _path: str) -> Sequence[Json]:
    """Stands for the other workers where the daemon is one process."""
    return ()


def _clients(components: Components, request: HttpRequest) -> Iterable[JsonObject]:
    served = components.pipeline.served.document
    # On a listener of its own for operators, the URL by which the page was reached is not that of the MCP endpoint.
    is_main = components.pipeline.first.listen.admin is None
    url = endpoint_url(components, request.client_endpoint.base_url if is_main else None)
    return () if url is None else snippets(url, name=served.server.name, needs_key=served.auth is not None)
