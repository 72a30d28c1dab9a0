"""Connects to a server: finds out its transport and its era where the file does not say them.

2026-07-28 basic/versioning, "Backward Compatibility": a client of both eras asks `server/discover` first; who answers
it is modern, and anything else is legacy. 2025-03-26 basic/transports, "Backwards Compatibility": where the POST of
`initialize` is answered with 4xx, the server may speak HTTP+SSE.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from gateway.access.subject import Subject
from gateway.json_types import JsonObject
from gateway.upstreams.client.link import Link
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
"""The time after which `initialize` is sent, too: an old server may not answer `server/discover` at all."""


class Way(msgspec.Struct, frozen=True):
    """A transport and an era."""

    transport: str
    era: Era


async def connect(  # noqa: PLR0913 - what is known of the server, and whom the session is for
    spec: ServerSpec,
    *,
    era: Era | None,
    known: Way | None,
    listener: Listener,
    capabilities: JsonObject,
    subject: Subject | None = None,
    seconds: float,
) -> tuple[Session, Way]:
    """Open a session, by the way that worked last or else by each that may work.

    `seconds` bounds all of it: the start of a process, the probe and the handshake.

    Raises:
        NoAnswerError: the time is over.
        UpstreamError: no way works. The text is that of the known way, or else of the one that came furthest.
    """
    attempt = _Attempt(
        spec=spec,
        new_session=partial(Session, listener=listener, capabilities=capabilities),
        open=partial(Session.open, subject=subject),
    )
    failure: UpstreamError | None = None
    try:
        async with asyncio.timeout(seconds) as limit:
            for way in _ways(spec, era, known):
                is_probe = way.era is Era.MODERN and era is None and way != known
                try:
                    opened = await attempt.by(way, seconds=PROBE_SECONDS if is_probe else None)
                except UpstreamError as error:
                    # That there is no event stream either does not say why requests are refused.
                    is_nothing_new = way.transport == "sse" and isinstance(error, NotMcpError | RequestRefusedError)
                    if failure is None or (known is None and not is_nothing_new):
                        failure = error
                    if _is_final(error, is_probe=is_probe):
                        break
                else:
                    if opened is not None:
                        return opened
    except TimeoutError:
        if not limit.expired():
            raise
        if failure is None or known is None:
            failure = attempt.with_noise(NoAnswerError(f"no handshake within {seconds:g} s"))
    finally:
        await attempt.end()
    raise failure or UnreachableError("does not answer")


def _is_final(error: UpstreamError, *, is_probe: bool) -> bool:
    """Whether another way would lead to the same failure."""
    if isinstance(error, RefusedCredentialsError):
        return not is_probe  # a server may refuse whatever it does not know
    return isinstance(error, NoCredentialsError) or type(error) is UnreachableError


@dataclass(kw_only=True, slots=True)
class _Attempt:
    """One attempt to connect: its session, which the ways of one transport share, and the handshakes there.

    A server that starts slowly may answer the first handshake only after the second was sent.
    """

    spec: ServerSpec
    new_session: Callable[[Link], Session]
    open: Callable[[Session], Awaitable[None]]
    session: Session | None = None
    transport: str = ""
    handshakes: set[asyncio.Task[None]] = field(default_factory=set)

    async def by(self, way: Way, *, seconds: float | None) -> tuple[Session, Way] | None:
        """Begin one more handshake, and return what the first of all opens; None if none has ended within `seconds`.

        Raises:
            UpstreamError: all have failed.
        """
        if self.session is not None and (self.transport != way.transport or self.session.is_closed):
            await self.end()
        try:
            if self.session is None:
                self.transport = way.transport
                self.session = self.new_session(self.spec.links[way.transport]())
                await self.open(self.session)
            return await self._first(self.session, way, seconds)
        except UpstreamError as error:
            raise self.with_noise(error) from None

    async def _first(self, session: Session, way: Way, seconds: float | None) -> tuple[Session, Way] | None:
        newest = asyncio.create_task(session.handshake(way.era), name="handshake with an upstream")
        newest.add_done_callback(lambda task: task.cancelled() or task.exception())  # it may be that nobody waits
        self.handshakes.add(newest)
        # Over HTTP the answer to one request says all: only a child may still be reading.
        while self.handshakes and (way.transport == "stdio" or not newest.done()):
            ended, self.handshakes = await asyncio.wait(
                self.handshakes, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not ended:
                return None
            if any(task.exception() is None for task in ended):
                self.session = None
                self._cancel()
                return session, Way(way.transport, session.era)
        await newest  # raises its failure
        return None

    def with_noise(self, error: UpstreamError) -> UpstreamError:
        """Quote what a program has written to its standard output in place of MCP."""
        if self.session is None or not self.session.noise:
            return error
        return type(error)(f'{error}; its standard output begins with "{self.session.noise}", which is not MCP')

    def _cancel(self) -> None:
        for task in self.handshakes:
            task.cancel()
        self.handshakes = set()

    async def end(self) -> None:
        self._cancel()
        session, self.session = self.session, None
        if session is not None:
            await session.close()


def _ways(spec: ServerSpec, era: Era | None, known: Way | None) -> Iterator[Way]:
    if known is not None and known.transport in spec.links and era in {None, known.era}:
        yield known
    for transport in spec.links:
        for each in (Era.MODERN, Era.LEGACY) if era is None else (era,):
            way = Way(transport, each)
            # HTTP+SSE belongs to 2024-11-05: no modern server speaks it.
            if way != known and not (transport == "sse" and each is Era.MODERN):
                yield way
