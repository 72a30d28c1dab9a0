"""A legacy session that this process serves."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Final

from msgspec.structs import replace

from gateway.json_types import Json
from gateway.protocol.exchange import Reply
from gateway.protocol.session import Session
from gateway.state.redis_sessions import SessionChange
from gateway.state.session_store import SessionRecord
from gateway.transports.sse.session_streams import EventStore

NOTHING: Final = SessionRecord(expires=0)


class LiveSession:
    __slots__ = ("_tasks", "caller", "is_restored", "nonce", "readers", "saved", "session", "streams", "used_at")

    def __init__(self, session: Session, *, nonce: str, caller: str, streams: EventStore, is_restored: bool) -> None:
        self.session: Final = session
        self.nonce: Final = nonce
        self.caller: Final = caller
        """The caller whose quota counts the session."""
        self.is_restored: Final = is_restored
        """Whether another process, or this process earlier, opened the session."""
        self.streams: Final = streams
        self.used_at = self.streams.loop.time()
        self._tasks: set[asyncio.Task[Reply]] = set()
        self.readers = 0
        self.saved: SessionRecord | None = None

    @property
    def idle_seconds(self) -> float:
        return self.streams.loop.time() - self.used_at if self.is_idle else 0.0

    @property
    def has_changed(self) -> bool:
        saved, session = self.saved, self.session
        return (
            saved is None
            or saved.log_level != session.log_level
            or saved.is_initialized != session.is_initialized
            # Changes replace the frozen set, so comparing identity is enough.
            or saved.subscriptions is not session.subscriptions
        )

    @property
    def is_idle(self) -> bool:
        return not self._tasks and not self.readers

    @property
    def load(self) -> int:
        """The number of requests in flight, including the requests in batches."""
        return max(len(self._tasks), len(self.session.in_flight))

    @property
    def tasks(self) -> frozenset[asyncio.Task[Reply]]:
        return frozenset(self._tasks)

    def record(self, *, expires: float, lists: Mapping[str, str]) -> SessionRecord:
        session = self.session
        self.saved = SessionRecord(
            expires=expires,
            log_level=session.log_level,
            is_initialized=session.is_initialized,
            subscriptions=session.subscriptions,
            lists=lists,
        )
        return self.saved

    def note_saved(self, record: SessionRecord | None) -> None:
        self.saved = record

    def apply(self, change: SessionChange) -> None:
        """Apply a change that another process has saved."""
        session, saved = self.session, self.saved or NOTHING
        session.restore(
            is_initialized=session.is_initialized or change.is_initialized,
            log_level=change.log_level or session.log_level,
            subscriptions=(session.subscriptions | change.added) - change.removed,
        )
        self.saved = replace(
            saved,
            is_initialized=saved.is_initialized or change.is_initialized,
            log_level=change.log_level or saved.log_level,
            subscriptions=session.subscriptions,
        )

    def touch(self) -> None:
        self.used_at = self.streams.loop.time()

    def spawn(self, answering: Coroutine[Json, Json, Reply], finish: Callable[[asyncio.Task[Reply]], None]) -> None:
        """Run a request in a task that continues after a disconnect. `finish` is called with the finished task."""

        def end(task: asyncio.Task[Reply]) -> None:
            self._tasks.discard(task)
            self.touch()
            finish(task)

        # Use only the end of the id, because the id is a credential and asyncio logs task names.
        task = self.streams.loop.create_task(answering, name=f"request of session …{self.session.id[-6:]}")
        self._tasks.add(task)
        task.add_done_callback(end)

    def begin_reading(self) -> None:
        self.readers += 1

    def end_reading(self) -> None:
        self.readers -= 1
        self.touch()

    def end(self) -> None:
        self.session.end()
        self.streams.close()
        for task in self._tasks:
            task.cancel()
