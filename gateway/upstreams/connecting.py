"""Connects to a server, and detects its transport and whether the server is legacy or modern.

2026-07-28 basic/versioning, "Backward Compatibility": clients send `server/discover` first, because only modern servers
respond to it. 2025-03-26 basic/transports, "Backwards Compatibility": if a server responds to `initialize` with 4xx,
clients try HTTP+SSE.
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
"""If `server/discover` gets no response in this time, `initialize` is also sent. Old servers can ignore unknown
methods.
"""


Handshake = tuple[str, Era]
"""A transport (`http`, `sse` or `stdio`) and an era (legacy or modern)."""


@dataclass(kw_only=True, slots=True)
class ConnectionAttempt:
    """One attempt to connect to a server.

    All handshakes use the same session, because a slow server can respond to the first handshake after the second.
    """

    spec: ServerSpec
    listener: Listener
    capabilities: JsonObject
    subject: Subject | None = None
    session: Session | None = None
    handshakes: set[asyncio.Task[None]] = field(default_factory=set)

    async def connect(self, *, era: Era | None, known: Handshake | None, seconds: float) -> Session:
        """Open a session within `seconds`. Try the `known` transport and era first.

        Raises:
            UpstreamError: all attempts failed. If `known` is given, this is the error of the `known` transport and era.
        """
        failure: UpstreamError | None = None
        try:
            async with asyncio.timeout(seconds):
                for handshake in _handshakes(self.spec, era, known):
                    transport, tried_era = handshake
                    is_probe = tried_era is Era.MODERN and era is None and handshake != known
                    try:
                        opened = await self._handshake(handshake, seconds=PROBE_SECONDS if is_probe else None)
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
            if failure is None or known is None:
                failure = self._with_output(NoAnswerError(f"no handshake within {seconds:g} s"))
        finally:
            await self._end()
        raise failure or UnreachableError("does not respond")

    async def _handshake(self, handshake: Handshake, *, seconds: float | None) -> Session | None:
        transport, era = handshake
        if self.session is not None and (self.session.transport != transport or self.session.is_closed):
            await self._end()
        try:
            if self.session is None:
                link = self.spec.links[transport]()
                self.session = Session(link, listener=self.listener, capabilities=self.capabilities)
                await self.session.open(subject=self.subject)
            return await self._first(self.session, era, seconds)
        except UpstreamError as error:
            raise self._with_output(error) from error.__cause__

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

    def _with_output(self, error: UpstreamError) -> UpstreamError:
        if self.session is None or not self.session.non_mcp_output:
            return error
        return type(error)(
            f'{error}. Its standard output starts with "{self.session.non_mcp_output}", which is not MCP'
        )

    def _cancel(self) -> None:
        for task in self.handshakes:
            task.cancel()
        self.handshakes = set()

    async def _end(self) -> None:
        self._cancel()
        session, self.session = self.session, None
        if session is not None:
            await session.close()


def _handshakes(spec: ServerSpec, era: Era | None, known: Handshake | None) -> Iterator[Handshake]:
    if known is not None and known[0] in spec.links and era in {None, known[1]}:
        yield known
    for transport in spec.links:
        for each in (Era.MODERN, Era.LEGACY) if era is None else (era,):
            handshake = transport, each
            # HTTP+SSE is a transport of 2024-11-05.
            if handshake != known and not (transport == "sse" and each is Era.MODERN):
                yield handshake
