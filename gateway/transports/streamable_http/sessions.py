"""Manages the legacy sessions of the HTTP listener.

A session ends when its client deletes it, when it is idle for `listen.session_ttl`, or when a reload removes its
credential. When the process ends, running calls are cancelled, but the session continues in the next process. When
`limits.sessions` is reached, new sessions are refused, and active sessions continue.
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
from gateway.bounded_map import BoundedMap
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Caller, Reply
from gateway.protocol.session import Session
from gateway.state.keys import SigningKeys
from gateway.state.redis_sessions import SessionChange
from gateway.state.replica import Replica
from gateway.state.session_store import SessionRecord, SessionStore
from gateway.transports.errors import HttpError
from gateway.transports.http.active_requests import Admits, Renewed
from gateway.transports.quota import ResourceQuota
from gateway.transports.sse.event_copies import EventCopies
from gateway.transports.sse.session_streams import EventStore, ReplayBounds, ReplayQuota
from gateway.transports.streamable_http.live_session import NOTHING, LiveSession
from gateway.transports.streamable_http.session_ids import SessionClaims, SessionIds, owner_mark
from gateway.wire.revisions import has_priming_events

log: Final = structlog.get_logger(__name__)

SHUTDOWN_GRACE_SECONDS: Final = 5.0

_MAX_SWEEP_SECONDS: Final = 30.0
_MAX_ENDED: Final = 100_000


class SessionPersistence(msgspec.Struct, frozen=True, kw_only=True):
    keys: SigningKeys
    store: SessionStore
    clock: Callable[[], float]
    replica: Replica | None = None


class Sessions:
    """The legacy sessions that this process serves. Other sessions are loaded when a request contains their id.

    A session's id contains the data of `initialize`. The store contains later changes of the session.
    """

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        quota: ResourceQuota,
        ttl: timedelta,
        replay: ReplayBounds,
        persistence: SessionPersistence,
    ) -> None:
        self.quota: Final = quota
        self.replay_quota: Final = ReplayQuota(replay)
        self.ttl: Final = ttl
        self.restored = 0
        self._dispatcher: Final = dispatcher
        self._store: Final = persistence.store
        self._clock: Final = persistence.clock
        self._ids: Final = SessionIds(persistence.keys, clock=persistence.clock)
        self.replica: Final = persistence.replica
        self.copies: Final = (
            None if self.replica is None else EventCopies(self.replica, max_events=replay.stream_events, age=replay.age)
        )
        """The copies of events for other replicas, or None for a single process."""
        self._process: Final = self.replica.name if self.replica else f"{secrets.token_hex(4)}{int(time.time()):x}"
        """The name of this process in event ids, which differs after each start."""
        self._slack: Final = ttl.total_seconds() / 4
        """The maximum delay in seconds before the use of a session is saved."""
        self._live: dict[str, LiveSession] = {}
        self._of_nonce: Final[dict[str, LiveSession]] = {}
        self._ended: Final[BoundedMap[str, SessionRecord]] = BoundedMap(_MAX_ENDED, clock=self._clock)
        """Ended sessions by nonce, in case the store is unavailable or a request has loaded an earlier record."""
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
        if self.copies is not None:
            await self.copies.close()

    def __len__(self) -> int:
        return len(self._live)

    @property
    def open_sessions(self) -> Iterator[Session]:
        return (live.session for live in self._live.values())

    async def open(self, session: Session, *, caller: str) -> LiveSession | HttpError:
        """Create an id for a new session and register the session, or return an error if too many sessions exist."""
        claims = self._ids.issue(session)
        if (refusal := await self.quota.reserve(caller)) is not None:
            session.end()
            return refusal
        live = self._keep(session, claims.nonce, caller=caller)
        if self._store.is_shared:  # Another process can receive the client's next request.
            await self.save(live)
        else:
            self._save_all([live])
        return live

    async def find(self, session_id: str, caller: Caller) -> LiveSession | HttpError | None:
        """Return the caller's session, or None if the session has ended or belongs to another caller.

        1. A session served here must match the caller and the view.
        2. Otherwise, one of our keys must have signed the id for this caller and view.
        3. The session must not have ended or expired.
        4. The quota must allow another session (otherwise 503).
        """
        live = self._live.get(session_id)
        if live is None:
            return await self._restore(session_id, caller)
        if live.session.identity.subject_key != caller.identity.subject_key or live.session.view != caller.view:
            return None
        live.touch()
        return live

    def served_here(self, session_id: str) -> LiveSession | None:
        """Return a session that this process serves, regardless of its caller."""
        return self._live.get(session_id)

    async def save(self, live: LiveSession) -> None:
        """Save the changes of a session. Await this method before confirming a change to the client."""
        before = live.saved or NOTHING
        await self._store.save(live.nonce, self._record(live), before=before)

    def take_change(self, change: SessionChange) -> None:
        """Apply a change that another process has saved."""
        live = self._of_nonce.get(change.nonce)
        if change.is_ended:
            self._record_end(change.nonce)
            if live is not None:
                self._close(live.session.id)
            return
        if live is None:
            return
        live.apply(change)
        if change.added or change.removed:
            self._dispatcher.notifier.watch_changed()

    async def catch_up(self) -> None:
        """Load changes missed during an outage of the store. Save the sessions again that the store has lost."""
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
            # The session could have ended while the store was read.
            if record is None and live.session.id in self._live:
                self._store.save_soon({live.nonce: self._record(live)}, before={live.nonce: NOTHING})

    async def delete(self, session_id: str) -> None:
        if (live := self._live.get(session_id)) is not None:
            # End the session before saving this, so that no new request starts in the session.
            ended = self._record_end(live.nonce)
            self._close(session_id)
            await self._store.save(live.nonce, ended)

    def revalidate(self, renewed: Renewed, *, admits: Admits, identified: Callable[[Session, Identity], None]) -> None:
        """End sessions with an invalid credential or an inaccessible view. Pass all other sessions to `identified`."""
        for session_id, live in list(self._live.items()):
            identity = renewed(live.session.identity)
            if identity is None or not admits(live.session.view, identity):
                self.end(session_id)
            else:
                identified(live.session, identity)

    def end(self, session_id: str) -> None:
        """End a session like `delete`, but without waiting for the store."""
        if (live := self._live.get(session_id)) is not None:
            self._close(session_id)
            self._store.save_soon({live.nonce: self._record_end(live.nonce)}, before={})

    def _stop_serving(self, session_id: str) -> None:
        """Release an idle session, which other replicas can continue. Without a shared store, end the session."""
        if not self._store.is_shared:
            self.end(session_id)
        elif (live := self._live.get(session_id)) is not None:
            self._close(session_id)
            self._store.release(live.nonce)

    @property
    def running(self) -> frozenset[asyncio.Task[Reply]]:
        return frozenset(task for live in self._live.values() for task in live.tasks)

    def end_streams(self) -> None:
        for live in self._live.values():
            live.session.outbox.close()

    def _keep(self, session: Session, nonce: str, *, caller: str, is_restored: bool = False) -> LiveSession:
        live = self._live[session.id] = LiveSession(
            session, nonce=nonce, caller=caller, streams=self._streams_of(session, nonce), is_restored=is_restored
        )
        if self.replica is not None:
            # A client's response can reach any replica, which forwards the response to the replica with this name.
            session.share(self.replica.name)
            self._of_nonce[nonce] = live
        self._dispatcher.notifier.session_opened(session)
        return live

    def _abort_connection(self, nonce: str, number: int) -> bool:
        live = self._of_nonce.get(nonce)
        return live is not None and live.streams.abort_connection(number)

    def _streams_of(self, session: Session, nonce: str) -> EventStore:
        return EventStore(
            self.replay_quota,
            sends_priming_event=has_priming_events(session.revision),
            process=self._process,
            nonce=nonce,
            copies=self.copies,
        )

    def _close(self, session_id: str) -> None:
        live = self._live.pop(session_id)
        self._of_nonce.pop(live.nonce, None)
        self.quota.release(live.caller, is_only_here=live.is_restored)
        self._ending |= live.tasks
        for task in live.tasks:
            task.add_done_callback(self._ending.discard)
        live.end()

    async def _restore(self, session_id: str, caller: Caller) -> LiveSession | HttpError | None:
        claims = self._ids.read(session_id)
        # MCP 2025-11-25 security best practices, "Session Hijacking": ids are only valid for their owner.
        if claims is None or claims.owner != owner_mark(caller.identity.subject_key) or claims.view != caller.view:
            return None
        record = await self._store.load(claims.nonce)
        if (live := self._live.get(session_id)) is not None:  # A concurrent request restored it.
            live.touch()
            return live
        if not self._can_continue(claims, record):
            return None
        if (refusal := self.quota.refusal_of(caller.rate_limit_key)) is not None:
            return refusal
        session = _session_of(claims, record, identity=caller.identity)
        session.rename(session_id)
        # The replica that opened the session counts it for all replicas.
        self.quota.acquire(caller.rate_limit_key)
        live = self._keep(session, claims.nonce, caller=caller.rate_limit_key, is_restored=True)
        live.note_saved(record)
        self._dispatcher.notifier.restore_session(session, known={} if record is None else record.lists)
        self.restored += 1
        return live

    def _can_continue(self, claims: SessionClaims, record: SessionRecord | None) -> bool:
        """Return whether a session that is not served here can continue.

        A session without a record can continue if its id is recent, or if a recent restart can have lost the record.
        """
        if self._ended.get(claims.nonce) is not None:
            return False
        if record is not None:
            return not record.is_ended
        if claims.issued_at + self._record_seconds > self._clock():
            return True
        return not self._store.has_all_records and self._began + self._record_seconds > self._clock()

    @property
    def _record_seconds(self) -> float:
        """A record's lifetime in seconds, which exceeds the TTL because the use of a session is saved with a delay."""
        return self.ttl.total_seconds() + 2 * self._slack

    def _record_end(self, nonce: str) -> SessionRecord:
        """Remember that a session has ended. Return the record to store, which expires after the session id does."""
        ended = SessionRecord(expires=self._clock() + self._record_seconds, is_ended=True)
        self._ended.put(nonce, ended, expires=ended.expires)
        return ended

    def _record(self, live: LiveSession) -> SessionRecord:
        session, before = live.session, live.saved
        # Before `initialized`, clients receive no notifications, so ignore earlier fingerprints.
        known = before.lists if before is not None and session.is_initialized else {}
        lists = self._dispatcher.notifier.known_fingerprints(session, before=known)
        return live.record(expires=self._clock() + self._record_seconds - live.idle_seconds, lists=lists)

    def _is_stale(self, live: LiveSession) -> bool:
        """Return whether the stored record of a session is outdated or would expire too early."""
        saved = live.saved
        if saved is None or live.has_changed:
            return True
        used_until = self._clock() + self._record_seconds - live.idle_seconds
        return used_until - saved.expires >= self._slack or saved.lists != self._dispatcher.notifier.known_fingerprints(
            live.session, before=saved.lists
        )

    def _save_all(self, sessions: Iterable[LiveSession]) -> None:
        sessions = tuple(sessions)
        before = {live.nonce: live.saved or NOTHING for live in sessions}
        records = {live.nonce: self._record(live) for live in sessions}
        if records:
            self._store.save_soon(records, before=before)

    async def _sweep(self) -> None:
        ttl = self.ttl.total_seconds()
        # Sessions outlive their TTL by at most a quarter of the TTL.
        pause = min(self._slack, self.replay_quota.bounds.age.total_seconds() / 4, _MAX_SWEEP_SECONDS)
        while True:
            await asyncio.sleep(pause)
            for live in self._live.values():
                live.streams.expire()
            try:
                for session_id, live in list(self._live.items()):
                    if live.is_idle and live.idle_seconds >= ttl:
                        self._stop_serving(session_id)
                self._save_all([live for live in self._live.values() if self._is_stale(live)])
                self._store.forget_expired()
            except Exception:  # Boundary: sessions would not expire if this task failed.
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
