"""Connects to a server: finds out its transport and its era where the file does not say them.

2026-07-28 basic/versioning, "Backward Compatibility": a client of both eras asks `server/discover` first; who answers
it is modern, and anything else is legacy. 2025-03-26 basic/transports, "Backwards Compatibility": where the POST of
`initialize` is answered with 4xx, the server may speak HTTP+SSE.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

import msgspec

from gateway.access.identity.credentials import Credential
from gateway.json_types import JsonObject
from gateway.upstreams.client.server_messages import Listener
from gateway.upstreams.client.session import Session
from gateway.upstreams.failures import (
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
"""The time that `server/discover` may take: an old server may not answer what it does not know."""


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
    token: Credential | None = None,
    is_anonymous: bool = False,
) -> tuple[Session, Way]:
    """Open a session, by the way that worked last or else by each that may work.

    Raises:
        UpstreamError: none works; the text is of the one that came furthest.
    """
    failure: UpstreamError | None = None
    session: Session | None = None
    opened = ""
    try:
        for way in _ways(spec, era, known):
            if session is not None and (opened != way.transport or session.is_closed):
                await session.close()
                session = None
            try:
                if session is None:
                    session = Session(spec.links[way.transport](), listener=listener, capabilities=capabilities)
                    opened = way.transport
                    await session.open(token=token, is_anonymous=is_anonymous)
                # Only a probe is hurried: where no other era would be tried after it, `connect_timeout` is the bound.
                is_last = way.era is Era.LEGACY or era is not None
                await _handshake(session, way, seconds=None if is_last or way == known else PROBE_SECONDS)
            except _SilentError as error:
                failure = error
                # It may yet take the first message for the choice of an era: the next one gets a connection of its own.
                if session is not None:
                    await session.close()
                    session = None
            except UpstreamError as error:
                failure = _furthest(failure, error, way)
                if isinstance(error, RefusedCredentialsError | NoCredentialsError) or type(error) is UnreachableError:
                    break  # another way would lead to the same door
            else:
                done, session = session, None
                return done, way
    finally:
        if session is not None:
            await session.close()
    raise failure or UnreachableError("does not answer")


def _furthest(before: UpstreamError | None, error: UpstreamError, way: Way) -> UpstreamError:
    # That there is no event stream either does not say why requests are refused.
    is_nothing_new = way.transport == "sse" and isinstance(error, NotMcpError | RequestRefusedError)
    return before if before is not None and is_nothing_new else error


class _SilentError(NotMcpError):
    """The server has not answered in time; it may still."""


async def _handshake(session: Session, way: Way, *, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds) as probing:
            await session.handshake(way.era)
    except TimeoutError as error:
        if not probing.expired():
            raise
        raise _SilentError("does not answer") from error


def _ways(spec: ServerSpec, era: Era | None, known: Way | None) -> Iterator[Way]:
    if known is not None and known.transport in spec.links and era in {None, known.era}:
        yield known
    for transport in spec.links:
        for each in (Era.MODERN, Era.LEGACY) if era is None else (era,):
            way = Way(transport, each)
            # HTTP+SSE belongs to 2024-11-05: no modern server speaks it.
            if way != known and not (transport == "sse" and each is Era.MODERN):
                yield way
