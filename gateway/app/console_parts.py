"""The console's part of the daemon: what records for it, and what its API asks. Imported only where it is served."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from gateway.app.reports.about import endpoint_url
from gateway.app.reports.components import Components
from gateway.config.models.console import ConsolePage
from gateway.console.admission import Admission
from gateway.console.api_path import ApiPart
from gateway.console.calls import CallsPart
from gateway.console.catalog import CatalogPart
from gateway.console.config import ConfigPart
from gateway.console.console import Console
from gateway.console.mcp_endpoint import McpPart
from gateway.console.open_views import OpenViews
from gateway.console.other_workers import NoOtherWorkers, OtherWorkers
from gateway.console.overview import OverviewPart
from gateway.console.printed_token import PrintedToken
from gateway.console.recording.call_rates import CallRates
from gateway.console.recording.numbers import Numbers
from gateway.console.recording.recorded_calls import RecordedCalls
from gateway.console.recording.task_progress import TaskProgress
from gateway.console.records import Records
from gateway.console.reports.daemon import Daemon
from gateway.console.session_cookie import SessionCookies
from gateway.console.snippets import snippets
from gateway.console.static_files import read_static_files
from gateway.console.written_files import FileReader
from gateway.errors import Problem
from gateway.json_types import Json, JsonObject
from gateway.state.keys import SigningKeys
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.telemetry.observer import Observer
from gateway.transports.http.admin_api import OPERATORS
from gateway.transports.http.middleware import Endpoint
from gateway.transports.http.request import HttpRequest
from gateway.transports.http_server import HttpServer


class ConsoleParts:
    """Makes the console of one daemon."""

    def __init__(self, *, worker: int) -> None:
        """Record nothing yet; `worker` is the number of this process among those that serve the same."""
        self._calls: Final = RecordedCalls(Numbers(worker=worker), rates=CallRates())
        self._records: Records | None = None
        self.task_progress: Final = TaskProgress()
        self.observers: Final[Sequence[Observer]] = (self._calls,)
        """Called for each request, for what the console shows of them."""

    def console(  # noqa: PLR0913 - what the daemon brings
        self,
        page: ConsolePage,
        components: Components,
        *,
        shared_keys: SigningKeys | None,
        health: Health,
        logs: Logs,
        status: Callable[[], Awaitable[JsonObject]],
        others: OtherWorkers | None = None,
    ) -> Console:
        """Make the console.

        Args:
            page: the key `listen.console`.
            components: those of the daemon, once it is loaded.
            shared_keys: the signing keys that other workers and replicas have as well, if any do.
            health: that of the daemon.
            logs: its log lines are shown with the calls that wrote them.
            status: the answer of `/-/api/status`.
            others: the other workers of the daemon, if it has several.
        """
        logs.heard = self._calls.heard
        self._records = records = Records(
            _daemon(components, health), self._calls, others=others or NoOtherWorkers(), status=status
        )
        records.start()
        components.dispatcher.tasks.runner.observers.append(self.task_progress)
        pipeline = components.pipeline
        problems = partial(_problems, components)
        files = FileReader(pipeline, state=partial(_state, components))
        views = OpenViews(components.dispatcher.views.entry)
        parts: list[ApiPart] = [
            records,
            OverviewPart(
                status=status,
                problems=problems,
                recorded=records,
                clients=partial(_clients, components),
                mask=partial(_masked, components),
            ),
            CatalogPart(pipeline, files, upstreams=components.upstreams.status),
            CallsPart(pipeline.store, components.services, views=views),
            ConfigPart(pipeline, files, problems=problems, recorded=records),
            McpPart(partial(_mcp_endpoint, components), views=views),
        ]
        return Console(
            admission=Admission(
                authenticator=components.authenticator,
                scopes=page.scopes,
                operators=OPERATORS,
                token=PrintedToken(shared_keys),
                cookies=SessionCookies(components.state.keys, clock=components.state.clock),
            ),
            files=read_static_files(),
            parts=parts,
        )

    async def answer(self, method: str, path: str, query: Mapping[str, str]) -> Json:
        """Answer another worker: see `OwnRecords.answer`."""
        return None if self._records is None else await self._records.own.answer(method, path, query)

    def drain(self) -> None:
        """End the streams of events: the daemon stops."""
        if self._records is not None:
            self._records.drain()

    async def close(self) -> None:
        if self._records is not None:
            await self._records.close()


def _daemon(components: Components, health: Health) -> Daemon:
    def http() -> HttpServer | None:
        listeners = components.listeners()
        return None if listeners is None else listeners.http

    return Daemon(
        pipeline=components.pipeline,
        reloader=components.reloader,
        dispatcher=components.dispatcher,
        upstreams=components.upstreams,
        http=http,
        open_sessions=components.open_sessions,
        status=health.status,
        state=lambda: health.state,
    )


def _problems(components: Components) -> Sequence[Problem]:
    """Return what keeps the files from being served, then the warnings of what is served."""
    return [*components.reloader.status.problems, *components.pipeline.store.current.warnings]


def _masked(components: Components, value: Json) -> Json:
    """Mask the secrets of now: a reload may bring others."""
    return components.pipeline.redactor.json(value)


def _state(components: Components) -> object:
    """Return what differs when the files should be read again."""
    return components.pipeline.store.current.generation, components.reloader.status.at


def _clients(components: Components, request: HttpRequest) -> Iterable[JsonObject]:
    served = components.pipeline.served.document
    is_main = components.pipeline.first.listen.admin is None
    url = endpoint_url(components, request.client_endpoint.base_url if is_main else None)
    return () if url is None else snippets(url, name=served.server.name, needs_key=served.auth is not None)


def _mcp_endpoint(components: Components) -> Endpoint:
    listeners = components.listeners()
    if listeners is None:
        raise RuntimeError("not listening")
    return listeners.http.streamable_http.handle
