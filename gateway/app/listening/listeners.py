"""The bindings that a daemon was told to offer: HTTP, stdio, or both at once."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Final

import structlog

from gateway.app.listening.http_front import HttpFront
from gateway.app.listening.premises import Premises
from gateway.config.address import Address
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.telemetry.health import Health
from gateway.transports.admissions import Admissions, Renewed
from gateway.transports.event_stream import Pace
from gateway.transports.http_sse import HttpSse
from gateway.transports.incoming import Bounds
from gateway.transports.ration import Ration
from gateway.transports.stdio.standard_streams import StandardStreams
from gateway.transports.stdio.stdio import Stdio
from gateway.transports.streamable_http.sessions import Sessions
from gateway.transports.streamable_http.streamable_http import StreamableHttp

log: Final = structlog.get_logger()

_MOMENT: Final = 0.25
"""The share of the time to drain in which load balancers may notice."""
_LONGEST_MOMENT_SECONDS: Final = 10.0
_MOST: Final = 10_000
"""Sessions, and streams, where the file names no number of them."""


class Listeners:
    """Opens the bindings, says of them what others want to know, and empties them before the end."""

    def __init__(
        self,
        premises: Premises,
        *,
        dispatcher: Dispatcher,
        health: Health,
        standard_streams: StandardStreams | None,
        on_input_end: Callable[[], None],
    ) -> None:
        self._premises: Final = premises
        self._dispatcher: Final = dispatcher
        self._health: Final = health
        self._standard_streams: Final = standard_streams
        self._on_input_end: Final = on_input_end
        document = premises.document
        limits, listen = document.limits, document.listen
        self.sessions: Final = Sessions(
            ration=Ration(limits.sessions, noun="sessions", default=_MOST), ttl=listen.session_ttl
        )
        self.streams: Final = Ration(limits.streams, noun="streams", default=_MOST)
        self._admissions: Final = Admissions()
        bounds = Bounds(
            max_body=listen.max_body,
            max_depth=limits.request_depth,
            pace=Pace(keepalive=listen.keepalive.total_seconds()),
            receive_seconds=listen.receive_timeout.total_seconds(),
        )
        self._mcp: Final = StreamableHttp(
            dispatcher=dispatcher,
            sessions=self.sessions,
            streams=self.streams,
            admissions=self._admissions,
            bounds=bounds,
        )
        self._sse: Final = (
            HttpSse(dispatcher=dispatcher, streams=self.streams, admissions=self._admissions, bounds=bounds)
            if listen.sse
            else None
        )
        self._http: HttpFront | None = None
        self._stdio: Stdio | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        """Begin to listen; what is opened closes with the stack.

        Raises:
            ConfigError: an address cannot be listened on, or must not be without authentication.
        """
        if self._premises.settings.serves_http:
            await self._open_http(stack)
        if self._standard_streams is not None:
            self._open_stdio(self._standard_streams, stack)

    @property
    def http_address(self) -> Address | None:
        return None if self._http is None else self._http.address

    @property
    def rations(self) -> Mapping[str, Ration]:
        """Of what there is a limited number, by its name under `limits`."""
        rations = {"sessions": self.sessions.ration, "streams": self.streams}
        return rations if self._http is None else {**rations, "connections": self._http.connections}

    def open_sessions(self) -> Iterator[tuple[Binding, Session]]:
        """The sessions of the legacy era, with the transport that each has."""
        places = {
            Binding.STREAMABLE_HTTP: self.sessions.open_sessions,
            Binding.HTTP_SSE: self._sse.open_sessions if self._sse is not None else (),
            Binding.STDIO: self._stdio.open_sessions if self._stdio is not None else (),
        }
        return ((binding, session) for binding, sessions in places.items() for session in sessions)

    @property
    def url(self) -> str | None:
        return None if self._http is None else self._http.url

    @property
    def are_reachable(self) -> bool:
        """Whether anybody beyond this machine can reach them, directly or through a proxy."""
        return self._http is not None and self._http.is_reachable

    def review(self, renewed: Renewed) -> None:
        """End the sessions, streams and calls of those who would no longer be let in."""
        self.sessions.review(renewed, identified=self._dispatcher.identified)
        self._admissions.review(renewed)

    async def drain(self, seconds: float) -> None:
        """Begin nothing that lasts, let load balancers move on, and give the calls in flight this long to end."""
        self._mcp.begin_leaving()
        if self._sse is not None:
            self._sse.begin_leaving()
        moment = self._moment(seconds)
        await asyncio.sleep(moment)
        if self._http is not None:
            self._http.stop_accepting()
        self._dispatcher.announcements.close()
        async with asyncio.TaskGroup() as group:
            for binding in (self._mcp, self._sse, self._stdio):
                if binding is not None:
                    group.create_task(binding.drain(seconds - moment))

    def _moment(self, seconds: float) -> float:
        """How long to accept on, so that whoever asks if we are ready hears that we are not before anybody is refused.

        Where nobody asks, it would be for nothing; where another process holds the socket, connections wait in it.
        """
        if self._http is None or self._http.outlives_us or not self._health.is_watched:
            return 0
        return min(seconds * _MOMENT, _LONGEST_MOMENT_SECONDS)

    async def _open_http(self, stack: AsyncExitStack) -> None:
        front = HttpFront(self._premises, mcp=self._mcp, sse=self._sse, is_leaving=lambda: self._health.is_stopping)
        await front.open(stack)
        self._http = front
        await stack.enter_async_context(self.sessions)

    def _open_stdio(self, streams: StandardStreams, stack: AsyncExitStack) -> None:
        self._stdio = stdio = Stdio(
            dispatcher=self._dispatcher,
            streams=streams,
            max_line=self._premises.document.listen.max_body,
            max_depth=self._premises.document.limits.request_depth,
            scopes=self._premises.settings.scopes,
        )
        task = asyncio.get_running_loop().create_task(self._serve_stdio(stdio), name="stdio")

        async def close() -> None:
            await stdio.close()
            await asyncio.wait([task])

        stack.push_async_callback(close)
        log.info("serving on standard input and output")

    async def _serve_stdio(self, stdio: Stdio) -> None:
        try:
            await stdio.serve()
        except Exception:  # Boundary: the task's owner only waits for its end.
            log.exception("stdio failed")
        finally:
            self._on_input_end()
