"""A legacy session as this process serves it: what runs in it, what is said in it, and how long it has been idle."""

import asyncio
from collections.abc import Coroutine
from typing import Final

from gateway.json_types import Json
from gateway.protocol.exchange import Reply
from gateway.protocol.session import Session
from gateway.state.session_store import SessionRecord
from gateway.transports.sse.event_store import EventStore


class LiveSession:
    """A session, with the tasks that serve its requests and what is said in it."""

    __slots__ = ("_readers", "_tasks", "caller", "nonce", "saved", "session", "streams", "used_at")

    def __init__(self, session: Session, *, nonce: str, caller: str, streams: EventStore) -> None:
        self.session: Final = session
        self.nonce: Final = nonce
        """The name of its record."""
        self.caller: Final = caller
        """Whose share of the sessions it is."""
        self.streams: Final = streams
        self.used_at = asyncio.get_running_loop().time()
        self._tasks: set[asyncio.Task[Reply]] = set()
        self._readers = 0
        """Open GET requests."""
        self.saved: SessionRecord | None = None
        """Its record as it was written last."""

    @property
    def idle_seconds(self) -> float:
        """Seconds since it was used last."""
        return asyncio.get_running_loop().time() - self.used_at if self.is_idle else 0.0

    @property
    def has_changed(self) -> bool:
        """Whether its client has set something that is not written down."""
        saved, session = self.saved, self.session
        return (
            saved is None
            or saved.log_level != session.log_level
            or saved.is_initialized != session.is_initialized
            or saved.subscriptions is not session.subscriptions
        )

    @property
    def readers(self) -> int:
        """Streams that its client has open for what belongs to no request."""
        return self._readers

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
        task = asyncio.get_running_loop().create_task(answering, name=f"request of session …{self.session.id[-6:]}")
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def begin_reading(self) -> None:
        """Note that its client has a stream open, until `end_reading`."""
        self._readers += 1

    def end_reading(self) -> None:
        self._readers -= 1
        self.touch()

    def end(self) -> None:
        self.session.end()
        self.streams.close()
        for task in self._tasks:
            task.cancel()

    def _forget(self, task: asyncio.Task[Reply]) -> None:
        self._tasks.discard(task)
        self.touch()
