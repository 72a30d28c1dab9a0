"""The console's part of the daemon: what records for it, and what its API asks. Imported only where it is served."""

from collections.abc import Sequence
from typing import Final

import structlog

from gateway.app.reports.components import Components
from gateway.config.models.console import ConsolePage
from gateway.console.admission import Admission
from gateway.console.api_path import ApiPart, ApiPath
from gateway.console.console import Console
from gateway.console.mcp_endpoint import McpEndpoint
from gateway.console.overview import Overview
from gateway.console.printed_token import PrintedToken
from gateway.console.recording.call_rates import CallRates
from gateway.console.recording.numbers import Numbers
from gateway.console.recording.recorded_calls import RecordedCalls
from gateway.console.records import Records
from gateway.console.reports.daemon import Daemon
from gateway.console.session_cookie import SessionCookies
from gateway.console.static_files import read_static_files
from gateway.state.keys import SigningKeys
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.telemetry.observer import Observer
from gateway.transports.http.admin_api import OPERATORS
from gateway.transports.http.middleware import Endpoint
from gateway.transports.http_server import HttpServer

log: Final = structlog.get_logger()


class ConsoleParts:
    """Makes the console of one daemon."""

    def __init__(self, *, worker: int) -> None:
        """Record nothing yet; `worker` is the number of this process among those that serve the same."""
        self._calls: Final = RecordedCalls(Numbers(worker=worker), rates=CallRates())
        self._records: Records | None = None
        self.observers: Final[Sequence[Observer]] = (self._calls,)
        """Called for each request, for what the console shows of them."""

    def console(
        self,
        page: ConsolePage,
        components: Components,
        *,
        shared_keys: SigningKeys | None,
        health: Health,
        logs: Logs,
    ) -> Console:
        """Make the console.

        Args:
            page: the key `listen.console`.
            components: those of the daemon, once it is loaded.
            shared_keys: the signing keys that other workers and replicas have as well, if any do.
            health: that of the daemon.
            logs: its log lines are shown with the calls that wrote them.
        """
        logs.heard = self._calls.heard
        self._records = records = Records(_daemon(components, health), self._calls)
        records.start()
        parts: list[ApiPart] = [records]
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
            own=[
                ApiPath(path="/overview", answer=Overview(health.status, recorded=records).answer),
                ApiPath(path="/mcp", answer=_mcp(components).answer, methods=("POST",)),
            ],
        )

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


def _mcp(components: Components) -> McpEndpoint:
    def endpoint() -> Endpoint:
        listeners = components.listeners()
        if listeners is None:
            raise RuntimeError("not listening")
        return listeners.http.streamable_http.handle

    return McpEndpoint(endpoint, find_view=components.dispatcher.view)
