"""Connects to a server, and detects its transport and era.

2026-07-28 basic/versioning, "Backward Compatibility": clients send `server/discover` first, because only modern servers
respond to it. 2025-03-26 basic/transports, "Backwards Compatibility": a server that responds to `initialize` with 4xx
can use HTTP+SSE.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from gateway.access.identity import Subject
from gateway.json_types import JsonObject
from gateway.upstreams.client.server_messages import Listener
from gateway.upstreams.client.session import Session
from gateway.upstreams.failures import (
    NoAnswerError,
    NoCredentialsError,
    NotMcpError,
    RefusedCredentialsError,
    RequestRefusedError,
    UnreachableError,
    UpstreamError,
)
from gateway.upstreams.server_spec import ServerSpec
from gateway.wire.revisions import Era

PROBE_SECONDS: Final = 10.0
"""Seconds before `initialize` is sent as well, because a legacy server may ignore `server/discover`."""


Way = tuple[str, Era]
"""A transport and an era."""


@dataclass(kw_only=True, slots=True)
class ConnectionAttempt:
    """One attempt to connect. Handshakes share a session, because a slow server can respond late to the first one."""

    spec: ServerSpec
    listener: Listener
    capabilities: JsonObject
    subject: Subject | None = None
    session: Session | None = None
    handshakes: set[asyncio.Task[None]] = field(default_factory=set)

    async def connect(self, *, era: Era | None, known: Way | None, seconds: float) -> Session:
        """Open a session within `seconds`. Try the `known` transport and era first.

        Raises:
            UpstreamError: all attempts failed. If `known` is given, this is the error of the `known` transport and era.
        """
        failure: UpstreamError | None = None
        try:
            async with asyncio.timeout(seconds) as limit:
                for way in _ways(self.spec, era, known):
                    transport, tried_era = way
                    is_probe = tried_era is Era.MODERN and era is None and way != known
                    try:
                        opened = await self._handshake(way, seconds=PROBE_SECONDS if is_probe else None)
                    except UpstreamError as error:
                        # A missing event stream does not explain why requests are refused.
                        is_nothing_new = transport == "sse" and isinstance(error, NotMcpError | RequestRefusedError)
                        if failure is None or (known is None and not is_nothing_new):
                            failure = error
                        # Other attempts would fail too, except after a probe: a server may refuse unknown methods.
                        is_refusal = isinstance(error, RefusedCredentialsError) and not is_probe
                        if is_refusal or isinstance(error, NoCredentialsError) or type(error) is UnreachableError:
                            break
                    else:
                        if opened is not None:
                            return opened
        except TimeoutError:
            if not limit.expired():
                raise
            if failure is None or known is None:
                failure = self._with_noise(NoAnswerError(f"no handshake within {seconds:g} s"))
        finally:
            await self._end()
        raise failure or UnreachableError("does not respond")

    async def _handshake(self, way: Way, *, seconds: float | None) -> Session | None:
        """Start a handshake. Return the session once this or an earlier handshake succeeds, or None after `seconds`."""
        transport, era = way
        if self.session is not None and (self.session.transport != transport or self.session.is_closed):
            await self._end()
        try:
            if self.session is None:
                link = self.spec.links[transport]()
                self.session = Session(link, listener=self.listener, capabilities=self.capabilities)
                await self.session.open(subject=self.subject)
            return await self._first(self.session, era, seconds)
        except UpstreamError as error:
            raise self._with_noise(error) from error.__cause__

    async def _first(self, session: Session, era: Era, seconds: float | None) -> Session | None:
        newest = asyncio.create_task(session.handshake(era), name="handshake with an upstream")
        newest.add_done_callback(lambda task: task.cancelled() or task.exception())  # marks the exception as retrieved
        self.handshakes.add(newest)
        # Over HTTP, one response is conclusive. A child process can take longer to read the first request.
        while self.handshakes and (session.transport == "stdio" or not newest.done()):
            ended, self.handshakes = await asyncio.wait(
                self.handshakes, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not ended:
                return None
            if any(task.exception() is None for task in ended):
                self.session = None
                self._cancel()
                return session
        await newest  # raises its failure
        return None

    def _with_noise(self, error: UpstreamError) -> UpstreamError:
        """Add the start of the server's output to an error message, if the output is not MCP."""
        if self.session is None or not self.session.noise:
            return error
        return type(error)(f'{error}; its standard output starts with "{self.session.noise}", which is not MCP')

    def _cancel(self) -> None:
        for task in self.handshakes:
            task.cancel()
        self.handshakes = set()

    async def _end(self) -> None:
        self._cancel()
        session, self.session = self.session, None
        if session is not None:
            await session.close()


def _ways(spec: ServerSpec, era: Era | None, known: Way | None) -> Iterator[Way]:
    if known is not None and known[0] in spec.links and era in {None, known[1]}:
        yield known
    for transport in spec.links:
        for each in (Era.MODERN, Era.LEGACY) if era is None else (era,):
            way = transport, each
            # HTTP+SSE is a transport of 2024-11-05.
            if way != known and not (transport == "sse" and each is Era.MODERN):
                yield way
