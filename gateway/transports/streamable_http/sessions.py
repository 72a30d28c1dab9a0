"""The legacy sessions of the HTTP listener: who has one, what runs in it, and when it ends.

A session ends when its client deletes it, when nobody has used it for `listen.session_ttl`, when a reload takes away
the credential that was shown for it last, or with the daemon. What runs in it ends with it. Over `limits.sessions` a
new one is refused rather than an old one evicted: a flood of `initialize` must not throw out those who work.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

import structlog

from gateway.access.identity import Identity
from gateway.json_types import Json
from gateway.protocol.exchange import Reply
from gateway.protocol.session import Session
from gateway.protocol.versions import V2025_11_25
from gateway.transports.admissions import Renewed
from gateway.transports.ration import Ration
from gateway.transports.streamable_http.kept_streams import KeptStreams, ReplayBounds, ReplayRoom

log: Final = structlog.get_logger()

FAREWELL_SECONDS: Final = 5.0
"""How long cancelled calls may take to end."""

_LONGEST_SWEEP_SECONDS: Final = 30.0
_REPLAY: Final = ReplayBounds()


class LiveSession:
    """A session, with the tasks that serve its requests and what is said in it."""

    __slots__ = ("_readers", "_tasks", "caller", "session", "streams", "used_at")

    def __init__(self, session: Session, *, caller: str, room: ReplayRoom) -> None:
        self.session: Final = session
        self.caller: Final = caller
        """Whose share of the sessions it is."""
        self.streams: Final = KeptStreams(room, primes=session.revision >= V2025_11_25)
        self.used_at = asyncio.get_running_loop().time()
        self._tasks: set[asyncio.Task[Reply]] = set()
        self._readers = 0
        """Open GET requests."""

    @property
    def is_idle(self) -> bool:
        return not self._tasks and not self._readers

    @property
    def load(self) -> int:
        """Requests that are being served, those of batches too."""
        return max(len(self._tasks), len(self.session.in_flight))

    @property
    def tasks(self) -> frozenset[asyncio.Task[Reply]]:
        return frozenset(self._tasks)

    def touch(self) -> None:
        self.used_at = asyncio.get_running_loop().time()

    def spawn(self, answering: Coroutine[Json, Json, Reply]) -> asyncio.Task[Reply]:
        """Serve a request in a task that no connection holds."""
        task = asyncio.get_running_loop().create_task(answering, name=f"request of session {self.session.id[:6]}…")
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Somebody has a stream open."""
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            self.touch()

    def end(self) -> None:
        self.session.outbox.close()
        self.streams.close()
        for task in self._tasks:
            task.cancel()

    def _forget(self, task: asyncio.Task[Reply]) -> None:
        self._tasks.discard(task)
        self.touch()


class Sessions:
    """All of them, by id."""

    def __init__(self, *, ration: Ration, ttl: timedelta, replay: ReplayBounds = _REPLAY) -> None:
        self.ration: Final = ration
        self.room: Final = ReplayRoom(replay)
        self.ttl: Final = ttl
        self._live: dict[str, LiveSession] = {}
        self._ending: set[asyncio.Task[Reply]] = set()
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep(), name="session sweeper")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        for session_id in list(self._live):
            self.end(session_id)
        if self._ending:
            _, stuck = await asyncio.wait(self._ending, timeout=FAREWELL_SECONDS)
            if stuck:
                log.warning("calls did not end when cancelled", calls=len(stuck))

    def __len__(self) -> int:
        return len(self._live)

    @property
    def open_sessions(self) -> Iterator[Session]:
        return (live.session for live in self._live.values())

    def open(self, session: Session, *, caller: str) -> LiveSession:
        """Keep a session, which counts as that caller's; the ration was asked before."""
        self.ration.take(caller)
        live = self._live[session.id] = LiveSession(session, caller=caller, room=self.room)
        return live

    def find(self, session_id: str, *, owner: str | None) -> LiveSession | None:
        """The caller's session. Somebody else's is as unknown as one that ended."""
        live = self._live.get(session_id)
        if live is None or live.session.identity.owner != owner:
            return None
        live.touch()
        return live

    def review(self, renewed: Renewed, *, identified: Callable[[Session, Identity], None]) -> None:
        """End the sessions of those who would no longer be let in, and tell of those who now hold something else."""
        for session_id, live in list(self._live.items()):
            identity = renewed(live.session.identity)
            if identity is None:
                self.end(session_id)
            else:
                identified(live.session, identity)

    def end(self, session_id: str) -> None:
        """Forget a session and end what runs in it."""
        live = self._live.pop(session_id, None)
        if live is None:
            return
        self.ration.give_back(live.caller)
        self._ending |= live.tasks
        for task in live.tasks:
            task.add_done_callback(self._ending.discard)
        live.end()

    @property
    def running(self) -> frozenset[asyncio.Task[Reply]]:
        """What serves the requests of all sessions."""
        return frozenset(task for live in self._live.values() for task in live.tasks)

    def end_streams(self) -> None:
        """End those that belong to no request."""
        for live in self._live.values():
            live.session.outbox.close()

    async def _sweep(self) -> None:
        ttl = self.ttl.total_seconds()
        pause = min(ttl / 4, self.room.bounds.age.total_seconds() / 4, _LONGEST_SWEEP_SECONDS)
        while True:
            await asyncio.sleep(pause)
            oldest = asyncio.get_running_loop().time() - ttl
            for session_id, live in list(self._live.items()):
                live.streams.expire()
                if live.is_idle and live.used_at <= oldest:
                    self.end(session_id)
