"""Keeps the legacy sessions of the HTTP listener, ends them when they are idle, and owns the calls in them.

A session ends when its client deletes it, when nobody has used it for `listen.session_ttl`, or when a reload takes away
the credential that was shown for it last. What runs in it ends with it, and with the process; the session itself goes
on in the next one. Over `limits.sessions` a new one is refused rather than an old one evicted: a flood of `initialize`
must not throw out those who work.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

import msgspec
import structlog

from gateway.access.identity import Identity
from gateway.background_tasks import BackgroundTasks
from gateway.bounded_map import BoundedMap
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Caller, Reply
from gateway.protocol.session import Session
from gateway.state.keys import SigningKeys, random_keys
from gateway.state.redis_sessions import RedisSessionCount, SessionAdmission, SessionChange
from gateway.state.replica import Replica
from gateway.state.session_store import MemorySessionStore, SessionRecord, SessionStore, SteadyClock
from gateway.transports.errors import HttpError
from gateway.transports.http.active_requests import Admits, Renewed
from gateway.transports.http.quota import ResourceQuota
from gateway.transports.sse.event_copies import EventCopies, SessionCopies
from gateway.transports.sse.event_store import EventStore, ReplayBounds, ReplayQuota
from gateway.transports.streamable_http.live_session import NOTHING, LiveSession
from gateway.transports.streamable_http.session_ids import SessionClaims, SessionIds, owner_mark
from gateway.wire.revisions import V2025_11_25


class SharedSessionCount:
    """The sessions of all replicas, as this one adds to them."""

    def __init__(self, count: RedisSessionCount, quota: ResourceQuota, *, expires: Callable[[], float]) -> None:
        """Count nothing yet; `expires` says when a session ends that is used now."""
        self._count: Final = count
        quota.store = count
        self._quota: Final = quota
        self._expires: Final = expires
        self._writes: Final = BackgroundTasks()

    async def close(self) -> None:
        """Let be written what is being written."""
        await self._writes.wait()

    async def refusal_of(self, nonce: str, caller: str) -> HttpError | None:
        """Count a new session; or return why there is no room for it."""
        quota = self._quota
        admission = await self._count.add(
            nonce, caller, expires=self._expires(), in_all=quota.in_all, per_caller=quota.per_caller
        )
        if admission is SessionAdmission.ADMITTED:
            return None
        return quota.refusal(caller, is_callers=admission is SessionAdmission.SHARE_TAKEN)

    def keep_soon(self, sessions: Iterable[LiveSession]) -> None:
        """Count on sessions that were used."""
        self._writes.begin(self._keep([(each.nonce, each.caller) for each in sessions]), name="session count: keep")

    async def remove(self, nonce: str) -> None:
        await self._count.remove(nonce)

    def remove_soon(self, nonce: str) -> None:
        self._writes.begin(self.remove(nonce), name="session count: remove")

    async def _keep(self, sessions: Iterable[tuple[str, str]]) -> None:
        for nonce, caller in sessions:
            await self._count.keep(nonce, caller, expires=self._expires())


log: Final = structlog.get_logger()

SHUTDOWN_GRACE_SECONDS: Final = 5.0
"""How long cancelled calls may take to end."""

_MAX_SWEEP_SECONDS: Final = 30.0
_MAX_ENDED: Final = 100_000
_REPLAY: Final = ReplayBounds()


class SessionPersistence(msgspec.Struct, frozen=True, kw_only=True):
    """Means by which sessions outlive the process."""

    keys: SigningKeys
    store: SessionStore
    clock: Callable[[], float]
    replica: Replica | None = None
    """This process among those that serve the same sessions at the same time; None: it is the only one."""

    @classmethod
    def none(cls) -> Self:
        """Sessions that end with the process, whose key nobody has."""
        clock = SteadyClock()
        return cls(keys=random_keys(), store=MemorySessionStore(clock=clock), clock=clock)


class Sessions:
    """The sessions that this process serves. One of another process, or of an earlier one, is restored when it is used.

    A session's id carries what `initialize` said, and the store what has changed since. Here are its streams and calls.
    """

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        quota: ResourceQuota,
        ttl: timedelta,
        replay: ReplayBounds = _REPLAY,
        persistence: SessionPersistence | None = None,
    ) -> None:
        persistence = persistence or SessionPersistence.none()
        self.quota: Final = quota
        self.room: Final = ReplayQuota(replay)
        self.ttl: Final = ttl
        self.restored = 0
        """Sessions of other processes that were taken over."""
        self._dispatcher: Final = dispatcher
        self._store: Final = persistence.store
        self._clock: Final = persistence.clock
        self._ids: Final = SessionIds(persistence.keys, clock=persistence.clock)
        self.replica: Final = persistence.replica
        self.copies: Final = (
            None if self.replica is None else EventCopies(self.replica, max_events=replay.stream_events, age=replay.age)
        )
        """Those of events, for other processes; None where there are none."""
        self._count: Final = (
            SharedSessionCount(self.replica.session_count, quota, expires=lambda: self._clock() + self._lasts)
            if self.replica is not None and quota.is_written
            else None
        )
        self._process: Final = self.replica.name if self.replica else f"{secrets.token_hex(4)}{int(time.time()):x}"
        """The name of this process and its start, in event ids."""
        self._slack: Final = ttl.total_seconds() / 4
        """Seconds by which a use may be written down too late."""
        self._live: dict[str, LiveSession] = {}
        self._of_nonce: Final[dict[str, LiveSession]] = {}
        self._ended: Final[BoundedMap[str, SessionRecord]] = BoundedMap(_MAX_ENDED, clock=self._clock)
        """By nonce, sessions whose end may be unknown to a record that is being read, or to a store that is away."""
        self._ending: set[asyncio.Task[Reply]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._began = self._clock()

    async def __aenter__(self) -> Self:
        if self.copies is not None:
            self.copies.answer(self._abort_connection)
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep(), name="session sweeper")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write down all sessions, which go on in the next process, and end what runs in them."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        self._save_all(self._live.values())
        for session_id in list(self._live):
            self._close(session_id)
        if self._ending:
            _, stuck = await asyncio.wait(self._ending, timeout=SHUTDOWN_GRACE_SECONDS)
            if stuck:
                log.warning("calls did not end when cancelled", calls=len(stuck))
        if self._count is not None:
            await self._count.close()
        if self.copies is not None:
            await self.copies.close()

    def __len__(self) -> int:
        return len(self._live)

    @property
    def open_sessions(self) -> Iterator[Session]:
        return (live.session for live in self._live.values())

    async def open(self, session: Session, *, caller: str) -> LiveSession | HttpError:
        """Give a new session its id, and keep it; it counts as that caller's, unless all replicas have too many."""
        claims = self._ids.issue(session)
        if self._count is not None and (refusal := await self._count.refusal_of(claims.nonce, caller)) is not None:
            session.end()
            return refusal
        live = self._keep(session, claims.nonce, caller=caller)
        if self._store.is_shared:  # another process may be asked for it next
            await self.save(live)
        else:
            self._save_all([live])
        return live

    async def find(self, session_id: str, caller: Caller) -> LiveSession | HttpError | None:
        """Return the caller's session; None for one that ended, and for somebody else's.

        1. it is served here, the caller's, and of the view that the path names
        2. or one of our keys has signed the id for this caller
        3. it has not ended, nor expired
        4. there is room for it here: 503
        """
        live = self._live.get(session_id)
        if live is None:
            return await self._restore(session_id, caller)
        if live.session.identity.subject_key != caller.identity.subject_key or live.session.view != caller.view:
            return None
        live.touch()
        return live

    def served_here(self, session_id: str) -> LiveSession | None:
        """Return a session that this process serves at the moment, whosever it is."""
        return self._live.get(session_id)

    async def save(self, live: LiveSession) -> None:
        """Write down what has changed of a session, before that is acknowledged."""
        before = live.saved or NOTHING
        await self._store.save(live.nonce, self._record(live), before=before)

    def take_change(self, change: SessionChange) -> None:
        """Take over what another process has written of a session that is served here, too."""
        live = self._of_nonce.get(change.nonce)
        if change.is_ended:
            self._note_end(change.nonce)
            if live is not None:
                self._close(live.session.id)
            return
        if live is None:
            return
        live.take(change)
        if change.added or change.removed:
            self._dispatcher.notifier.watch_changed()

    async def catch_up(self, *, is_lost: bool) -> None:
        """Learn what others have written while the shared store was away; write all anew if it has lost what it had."""
        for live in list(self._live.values()):
            record = await self._store.load(live.nonce)
            if record is not None:
                self.take_change(
                    SessionChange(
                        nonce=live.nonce,
                        log_level=record.log_level,
                        is_initialized=record.is_initialized,
                        added=record.subscriptions - live.session.subscriptions,
                        is_ended=record.is_ended,
                    )
                )
            # It may have ended while the store was asked.
            if self._count is not None and live.session.id in self._live:
                self._count.keep_soon([live])
            if is_lost and live.session.id in self._live:
                self._store.save_soon({live.nonce: self._record(live)}, before={live.nonce: NOTHING})

    async def delete(self, session_id: str) -> None:
        """End a session, for every process that could restore it."""
        if (live := self._live.get(session_id)) is not None:
            # First, so that no request begins in it while the store is told.
            ended = self._note_end(live.nonce)
            self._close(session_id)
            await self._store.save(live.nonce, ended)
            if self._count is not None:
                await self._count.remove(live.nonce)

    def revalidate(self, renewed: Renewed, *, admits: Admits, identified: Callable[[Session, Identity], None]) -> None:
        """End the sessions of those who would no longer be let in, and tell of those who now hold something else.

        Sessions of a view that is gone end too.
        """
        for session_id, live in list(self._live.items()):
            identity = renewed(live.session.identity)
            if identity is None or not admits(live.session.view, identity):
                self.end(session_id)
            else:
                identified(live.session, identity)

    def end(self, session_id: str) -> None:
        """End a session as `delete` does, and wait for nothing."""
        if (live := self._live.get(session_id)) is not None:
            self._close(session_id)
            self._store.save_soon({live.nonce: self._note_end(live.nonce)})
            if self._count is not None:
                self._count.remove_soon(live.nonce)

    def _leave(self, session_id: str) -> None:
        """Serve a session that is idle here no longer; those who share the store may serve it on."""
        if not self._store.is_shared:
            self.end(session_id)
        elif (live := self._live.get(session_id)) is not None:
            self._close(session_id)
            self._store.release(live.nonce)

    @property
    def running(self) -> frozenset[asyncio.Task[Reply]]:
        """The tasks that serve the requests of all sessions."""
        return frozenset(task for live in self._live.values() for task in live.tasks)

    def end_streams(self) -> None:
        """End those that belong to no request."""
        for live in self._live.values():
            live.session.outbox.close()

    def _keep(self, session: Session, nonce: str, *, caller: str) -> LiveSession:
        self.quota.acquire(caller)
        live = self._live[session.id] = LiveSession(
            session, nonce=nonce, caller=caller, streams=self._streams_of(session, nonce)
        )
        if self.replica is not None:
            # Answers come to whichever replica the client happens to reach, and find the one that asked by this.
            session.share(self.replica.name)
            self._of_nonce[nonce] = live
        self._dispatcher.notifier.session_opened(session)
        return live

    def _abort_connection(self, nonce: str, number: int) -> bool:
        live = self._of_nonce.get(nonce)
        return live is not None and live.streams.abort_connection(number)

    def _streams_of(self, session: Session, nonce: str) -> EventStore:
        return EventStore(
            self.room,
            sends_priming_event=session.revision >= V2025_11_25,
            process=self._process,
            copies=None if self.copies is None else SessionCopies(self.copies, nonce),
        )

    def _close(self, session_id: str) -> None:
        """Serve a session no longer."""
        live = self._live.pop(session_id)
        self._of_nonce.pop(live.nonce, None)
        self.quota.release(live.caller)
        self._ending |= live.tasks
        for task in live.tasks:
            task.add_done_callback(self._ending.discard)
        live.end()

    async def _restore(self, session_id: str, caller: Caller) -> LiveSession | HttpError | None:
        claims = self._ids.read(session_id)
        # 2025-11-25 security best practices, "Session Hijacking": an id is good for its owner alone.
        if claims is None or claims.owner != owner_mark(caller.identity.subject_key) or claims.view != caller.view:
            return None
        record = await self._store.load(claims.nonce)
        if (live := self._live.get(session_id)) is not None:  # another request of it came first
            live.touch()
            return live
        if not self._is_good(claims, record):
            return None
        if (refusal := self.quota.refusal_of(caller.rate_limit_key)) is not None:
            return refusal
        session = _session_of(claims, record, identity=caller.identity)
        session.rename(session_id)
        live = self._keep(session, claims.nonce, caller=caller.rate_limit_key)
        live.note_saved(record)
        self._dispatcher.restore_session(session, told={} if record is None else record.lists)
        self.restored += 1
        return live

    def _is_good(self, claims: SessionClaims, record: SessionRecord | None) -> bool:
        """Tell whether a session that is not served here may go on. Of its end nothing but its record tells.

        One without a record was made too short a while ago to have expired, or nobody could remember it.
        """
        if self._ended.get(claims.nonce) is not None:
            return False
        if record is not None:
            return not record.is_ended
        if claims.issued_at + self._lasts > self._clock():
            return True
        return not self._store.knows_the_past and self._began + self._lasts > self._clock()

    @property
    def _lasts(self) -> float:
        """Seconds for which a record is good: the use that was written down may not be the last one."""
        return self.ttl.total_seconds() + 2 * self._slack

    def _note_end(self, nonce: str) -> SessionRecord:
        """Remember that a session ended, and return the record of that, which is good as long as its id could be."""
        ended = SessionRecord(expires=self._clock() + self._lasts, is_ended=True)
        self._ended.put(nonce, ended, expires=ended.expires)
        return ended

    def _record(self, live: LiveSession) -> SessionRecord:
        """The record of a session as it is now, which is about to be written down."""
        session, before = live.session, live.saved
        # Before `initialized` it is told of no change, and knows the lists of its beginning, or newer ones.
        known = before.lists if before is not None and session.is_initialized else {}
        lists = self._dispatcher.told(session, before=known)
        return live.record(expires=self._clock() + self._lasts - live.idle_seconds, lists=lists)

    def _is_stale(self, live: LiveSession) -> bool:
        """Tell whether a session would end too early by its record, or be told again of what it knows."""
        saved = live.saved
        if saved is None or live.has_changed:
            return True
        used_until = self._clock() + self._lasts - live.idle_seconds
        return used_until - saved.expires >= self._slack or saved.lists != self._dispatcher.told(
            live.session, before=saved.lists
        )

    def _save_all(self, sessions: Iterable[LiveSession]) -> None:
        sessions = tuple(sessions)
        before = {live.nonce: live.saved or NOTHING for live in sessions}
        records = {live.nonce: self._record(live) for live in sessions}
        if records:
            self._store.save_soon(records, before=before)
        if self._count is not None:
            self._count.keep_soon(sessions)

    async def _sweep(self) -> None:
        ttl = self.ttl.total_seconds()
        # Often enough that nothing outlives its time by more than a quarter of it.
        pause = min(self._slack, self.room.bounds.age.total_seconds() / 4, _MAX_SWEEP_SECONDS)
        while True:
            await asyncio.sleep(pause)
            for live in self._live.values():
                live.streams.expire()
            try:
                for session_id, live in list(self._live.items()):
                    if live.is_idle and live.idle_seconds >= ttl:
                        self._leave(session_id)
                self._save_all([live for live in self._live.values() if self._is_stale(live)])
                self._store.forget_expired()
            except Exception:  # Boundary: nothing would ever expire if this task ended
                log.exception("session sweep failed")


def _session_of(claims: SessionClaims, record: SessionRecord | None, *, identity: Identity) -> Session:
    session = Session(
        revision=claims.revision,
        client_info={"name": claims.client_name, "version": claims.client_version},
        capabilities=claims.capabilities,
        identity=identity,
        view=claims.view,
    )
    session.restore(
        is_initialized=record is None or record.is_initialized,
        log_level=None if record is None else record.log_level,
        subscriptions=frozenset() if record is None else record.subscriptions,
    )
    return session
