"""The sessions with one upstream server, and its circuit breaker. Clients share one session or have separate sessions.

Failed connections are retried after 1 s, 2 s … 60 s, with jitter. Five calls in a row without a response open the
circuit. Calls then fail immediately until a probe succeeds. An error response counts as a response.
"""

import asyncio
import os
import random
import time
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from time import monotonic
from typing import Final, TypeVar

import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.config.models.upstreams import Upstream
from gateway.errors import OverLimitError, RpcError
from gateway.json_types import JsonObject
from gateway.limits.concurrency import ConcurrencyPermit
from gateway.limits.fair_semaphore import FairSemaphore
from gateway.repeated_warnings import RepeatedWarning
from gateway.telemetry.metric_definitions import SECONDS_BUCKETS
from gateway.upstreams.client.relayed_call import EVERYTHING, RelayedCall, allowed
from gateway.upstreams.client.server_messages import Listener
from gateway.upstreams.client.session import Session
from gateway.upstreams.connecting import ConnectionAttempt, Handshake
from gateway.upstreams.failures import (
    ANSWERS,
    ConnectionLostError,
    NoAnswerError,
    NoCredentialsError,
    NotMcpError,
    RefusedCredentialsError,
    SessionLostError,
    UnreachableError,
    UpstreamError,
)
from gateway.upstreams.server_spec import ServerSpec
from gateway.wire.headers import HeaderParameter
from gateway.wire.revisions import Era

log: Final = structlog.get_logger(__name__)

T = TypeVar("T")

SHARED: Final = ""
STARTING: Final = max(4, 2 * (os.cpu_count() or 1))
_START_SECONDS: Final = 4.0
"""A child process counts as starting until it is ready, but no longer than this number of seconds."""
_CONCURRENCY: Final = 16
_QUEUE: Final = 64
_FOREVER: Final = 1e8
FAILED_CALLS: Final = 5
MAX_BACKOFF: Final = 60.0
_REMEMBERED_FAILURES: Final = 20
_SAME_FAILURE_SECONDS: Final = 0.5
"""Equal failures within this number of seconds are recorded once, because one cause can fail all open calls."""


class CircuitBreaker:
    def __init__(self, name: str) -> None:
        self.reason = ""
        self.next_try = 0.0
        """Earliest time of the next connection attempt, by `time.monotonic`."""
        self.since = time.time()
        """Unix time at which the server became reachable or unreachable."""
        self.failures: Final[deque[tuple[float, str]]] = deque(maxlen=_REMEMBERED_FAILURES)
        """The Unix time and message of each recent failure."""
        self.warning: Final = RepeatedWarning()
        self._name: Final = name
        self._failed_connects = 0
        self._failed_calls = 0

    @property
    def is_open(self) -> bool:
        return self._failed_calls >= FAILED_CALLS

    @property
    def is_backing_off(self) -> bool:
        return self._failed_connects > 0

    @property
    def seconds_to_next_try(self) -> int:
        return max(1, round(self.next_try - monotonic()))

    def check_call(self) -> None:
        """Raise UnreachableError if the circuit is open."""
        if self.is_open:
            raise self.unreachable(self.reason)

    def check_connect(self) -> None:
        """Raise UnreachableError if a failed connection must not be retried yet."""
        if monotonic() < self.next_try:
            raise self.unreachable(self.reason)

    def connect_failed(self, reason: str) -> None:
        """Record a failed connection, and increase the backoff unless a backoff is already running."""
        if not self.reason:
            self.since = time.time()
        self._record(reason)
        self.reason = reason
        if monotonic() < self.next_try:
            return
        self._failed_connects += 1
        # 2.0 ** 1024 would raise OverflowError.
        delay = min(MAX_BACKOFF, 2.0 ** min(self._failed_connects - 1, 10))
        # Jitter keeps replicas from reconnecting at the same time.
        self.next_try = monotonic() + delay * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load

    def connected(self) -> None:
        """Record a successful handshake. An open circuit stays open, because calls may still fail."""
        if not self.is_open:
            self._close_backoff()

    def lost(self, reason: str) -> None:
        self.since = time.time()
        self._record(reason)

    def call_failed(self, reason: str) -> None:
        self._record(reason)
        self._failed_calls += 1
        if self.is_open:
            self.connect_failed(reason)
            if self.warning.is_due():
                log.warning("upstream does not respond", upstream=self._name, failed_calls=self._failed_calls)

    def answered(self, *, is_connected: bool) -> None:
        self._failed_calls = 0
        # A response in a closed session does not prove that new connections succeed.
        if self._failed_connects and is_connected:
            self._close_backoff()

    def reset(self) -> None:
        self._failed_calls = 0
        self._close_backoff()

    def with_name(self, error: UpstreamError) -> UpstreamError:
        """Add the name of the server to an error message."""
        text = str(error)
        if text.startswith(f"{self._name} "):
            return error
        if isinstance(error, ANSWERS) and not isinstance(error, SessionLostError):
            return type(error)(f"{self._name} {text}")
        return self.unreachable(text) if isinstance(error, UnreachableError) else type(error)(f"{self._name}: {text}")

    def unreachable(self, reason: str) -> UnreachableError:
        return UnreachableError(f"{self._name} cannot be reached: {reason}; next try in {self.seconds_to_next_try} s")

    def _close_backoff(self) -> None:
        self._failed_connects, self.reason, self.next_try = 0, "", 0.0

    def _record(self, reason: str) -> None:
        at, message = self.failures[-1] if self.failures else (0.0, "")
        if message != reason or time.time() - at > _SAME_FAILURE_SECONDS:
            self.failures.append((time.time(), reason))


class SessionPool:
    def __init__(
        self, name: str, config: Upstream, spec: ServerSpec, *, listener: Listener, starting: asyncio.Semaphore
    ) -> None:
        """Create a pool without sessions. `starting` limits how many child processes start at the same time."""
        self.name: Final = name
        self._starting: Final = starting
        self.config = config
        self.spec: Final = spec
        self._listener: Final = listener
        self._held: Final[OrderedDict[str, Session]] = OrderedDict()
        self._connecting: Final[dict[str, asyncio.Task[Session]]] = {}
        self._lost_by: Final[set[str]] = set()
        """Keys of lost sessions. Each session is reopened once without backoff."""
        self._closing: Final = BackgroundTasks()
        self._semaphore: Final = FairSemaphore()
        self._is_closed = False
        self._in_use_by = 0
        self._is_quiet: Final = asyncio.Event()
        self._is_quiet.set()
        self.circuit: Final = CircuitBreaker(name)
        self.known_handshake: Handshake | None = None
        self.is_stateless: bool | None = None
        """Whether the server keeps no state between requests. None before the first connection."""
        self.restarts = 0
        self.calls = {"success": 0, "error": 0}
        self.seconds = 0.0
        self.within = [0] * (len(SECONDS_BUCKETS) + 1)
        self.last_response_at = 0.0

    @property
    def state(self) -> str:
        if any(not session.is_closed for session in self._held.values()):
            return "degraded" if self.circuit.is_open or self.circuit.is_backing_off else "up"
        if self._connecting:
            return "connecting"
        return "backing_off" if self.circuit.reason else "idle"

    @property
    def sessions(self) -> list[Session]:
        return [session for session in self._held.values() if not session.is_closed]

    @property
    def client_sessions(self) -> list[Session]:
        return [session for key, session in self._held.items() if key != SHARED and not session.is_closed]

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        call: RelayedCall,
        is_repeatable: bool = False,
        mirrored: tuple[HeaderParameter, ...] = (),
    ) -> JsonObject:
        """Send a request in the session of a call.

        Retry once if the request was not executed, or if it can be executed twice (`is_repeatable`).

        Raises:
            RpcError: the server returned an error.
            UpstreamError: the request failed. The message contains the server's name.
            OverLimitError: too many calls are waiting.
        """
        self.circuit.check_call()
        began = monotonic()
        permit = await self._permit(call)
        call.attach_permit(permit)
        is_again = False
        try:
            with self._in_use():
                while True:
                    session = await self.session_for(call)
                    try:
                        result = await session.request(method, params, call=call, mirrored=mirrored)
                        if "task" in params and isinstance(task := result.get("task"), dict):
                            # MCP 2025-11-25 basic/utilities/tasks: the response arrives when the task is done.
                            result = await session.request("tasks/result", {"taskId": task.get("taskId")}, call=call)
                        break
                    except UpstreamError as error:
                        if is_again or not self._can_send_again(session, error, is_repeatable=is_repeatable):
                            raise
                        is_again = True
        except RpcError:
            self._answered("error", began)
            raise
        except NoCredentialsError as error:
            self._count("error", began)
            # The cause tells callers whether the user can sign in.
            raise self.circuit.with_name(error) from error.__cause__
        except ANSWERS as error:
            self._answered("error", began)
            raise self.circuit.with_name(error) from error
        except UpstreamError as error:
            self._count("error", began)
            self.circuit.call_failed(str(error))
            raise self.circuit.with_name(error) from error
        finally:
            permit.release()
        self._answered("success", began)
        return result

    async def session_for(self, call: RelayedCall | None) -> Session:
        """Return an open session for a call, or the shared session without a call. Raise UpstreamError on failure."""
        key = self._key(call)
        held = self._held.get(key)
        if held is not None and not held.is_closed:
            held.used_at = monotonic()
            self._held.move_to_end(key)
            return held
        connecting = self._connecting.get(key)
        if connecting is None:
            if self._is_closed:
                raise UnreachableError(f"{self.name} is no longer configured")
            if key not in self._lost_by:
                self.circuit.check_connect()
            self._lost_by.discard(key)
            self._check_room()
            connecting = asyncio.create_task(self._connect(key, call), name=f"connect to {self.name}")
            self._connecting[key] = connecting
            connecting.add_done_callback(lambda _: self._connecting.pop(key, None))
            # Marks the exception as retrieved, in case all waiting calls were cancelled.
            connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        with nullcontext() if call is None else self._in_use():
            # Other calls may wait for the same connection.
            return await asyncio.shield(connecting)

    async def probe(self) -> None:
        """Ping the server. Close the circuit if the server responds, or else raise UpstreamError."""
        # Any response closes an open circuit. A closed circuit is only confirmed by a success.
        with suppress(RpcError, *(ANSWERS if self.circuit.is_open else ())):
            await self.in_any_session(Session.ping)
        self._note_response()

    async def in_any_session(self, ask: Callable[[Session], Awaitable[T]]) -> T:
        """Call `ask` with any open session. If none is open, open the shared session."""
        for session in self.sessions:
            try:
                return await self.ask(session, ask)
            except SessionLostError as error:  # for example after a restart of the server
                self._lost(session, str(error))
        return await self.ask(await self.session_for(None), ask)

    async def ask(self, session: Session, ask: Callable[[Session], Awaitable[T]]) -> T:
        """Call `ask` with a session. Raise TimeoutError after `connect_timeout`."""
        async with asyncio.timeout(self.config.connect_timeout.total_seconds()):
            return await ask(session)

    async def in_shared_session(self, ask: Callable[[Session], Awaitable[T]]) -> T:
        """Call `ask` with the shared session, which declares all client capabilities that the configuration allows.

        Use the session of a client instead if `max_sessions` is reached, or if the server only accepts signed-in
        callers.
        """
        held = self._held.get(SHARED)
        if held is None and len(self._held) >= self.config.max_sessions:
            return await self.in_any_session(ask)
        try:
            return await self.ask(await self.session_for(None), ask)
        except SessionLostError as error:
            if held is not None:
                self._lost(held, str(error))
            return await self.ask(await self.session_for(None), ask)
        except UpstreamError as error:
            if not (self.sessions and self.concerns_caller(error)):
                raise
            return await self.in_any_session(ask)

    def concerns_caller(self, error: Exception) -> bool:
        """Return whether an error concerns the credentials of one caller rather than the server."""
        return self.spec.signs_in_callers and isinstance(error, NoCredentialsError | RefusedCredentialsError)

    @property
    def is_child(self) -> bool:
        return self.spec.stderr_tail is not None

    def forget_failures(self) -> None:
        """Allow a new connection at once, and close unused sessions."""
        self.circuit.reset()
        for session in tuple(self._held.values()):
            if not session.open_calls:
                self.drop(session)

    def roots_changed(self, key: str) -> None:
        held = self._held.get(key)
        if held is not None and not held.is_closed:
            held.roots_changed()

    def end_session_of(self, key: str) -> None:
        """Close the session of a client, even during a call."""
        if (connecting := self._connecting.get(key)) is not None:
            # By then, an earlier callback has removed the task from `_connecting`.
            connecting.add_done_callback(lambda _: self.end_session_of(key))
        elif (held := self._held.get(key)) is not None:
            self.drop(held)
        self._lost_by.discard(key)

    def drop(self, session: Session) -> None:
        for key, held in tuple(self._held.items()):
            if held is session:
                del self._held[key]
        self._end(session)

    def close_idle(self) -> None:
        """Close sessions that were unused for longer than `idle`. With `start: eager`, keep the shared session."""
        oldest = monotonic() - self.config.idle.total_seconds()
        for key, session in tuple(self._held.items()):
            is_kept = self.config.start == "eager" and key == SHARED
            # A session with watched resources is in use.
            if session.used_at < oldest and not session.open_calls and not session.subscribed and not is_kept:
                self.drop(session)

    async def quiet(self) -> None:
        while self._in_use_by:
            await self._is_quiet.wait()

    async def close(self) -> None:
        # Set first, so that no new connection is opened.
        self._is_closed = True
        for connecting in tuple(self._connecting.values()):
            connecting.cancel()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        for session in tuple(self._held.values()):
            self.drop(session)
        await self._closing.wait()

    def _key(self, call: RelayedCall | None) -> str:
        if call is None or self.config.session == "shared":
            return SHARED
        # A stateless HTTP server cannot distinguish sessions.
        if self.config.session is None and self.is_stateless:
            return SHARED
        return call.key

    async def _connect(self, key: str, call: RelayedCall | None) -> Session:
        era = None if self.config.era is None else Era(self.config.era)
        try:
            async with self._start_permit():
                session = await ConnectionAttempt(
                    spec=self.spec,
                    listener=self._listener,
                    capabilities=self._declared(call),
                    subject=None if call is None else call.subject,
                ).connect(era=era, known=self.known_handshake, seconds=self.config.connect_timeout.total_seconds())
        except NoCredentialsError:
            raise
        except UpstreamError as error:
            if self.concerns_caller(error):
                raise self.circuit.with_name(error) from error
            if isinstance(error, NoAnswerError) and self.is_child and self.is_stateless is None:
                # Some servers hang after an unknown request, so every second attempt starts with `initialize`.
                self.known_handshake = None if self.known_handshake else ("stdio", Era.LEGACY)
            self.circuit.connect_failed(str(error))
            raise self.circuit.unreachable(str(error)) from error
        return await self._opened(key, session)

    @asynccontextmanager
    async def _start_permit(self) -> AsyncIterator[None]:
        if not self.is_child:
            yield
            return
        await self._starting.acquire()
        permit = ExitStack()
        permit.callback(self._starting.release)
        timer = asyncio.get_running_loop().call_later(_START_SECONDS, permit.close)
        try:
            yield
        finally:
            timer.cancel()
            permit.close()

    async def _opened(self, key: str, session: Session) -> Session:
        self.known_handshake, self.is_stateless = (session.transport, session.era), session.is_stateless
        self._lost_by.clear()
        if self.config.session is None and session.is_stateless:
            key = SHARED
        other = self._held.get(key)
        if other is not None and not other.is_closed:
            self._end(session)  # two calls connected to a stateless server at the same time
            return other
        if not self.sessions:
            self.circuit.since = time.time()
        self._held[key] = session
        session.closed.add_done_callback(lambda closed: self._lost(session, closed.result()))
        self.last_response_at = session.used_at = monotonic()
        self.circuit.connected()
        self.circuit.warning.reset()
        log.info("upstream connected", upstream=self.name, transport=session.transport, revision=session.revision)
        await self._listener.session_opened(session.watch)
        return session

    def _lost(self, session: Session, reason: str) -> None:
        # Ignore sessions that this pool has closed itself.
        if keys := {key for key, held in self._held.items() if held is session}:
            self._lost_by.update(keys, {SHARED})
            self.restarts += 1
            self.circuit.lost(reason)
            if self.circuit.warning.is_due():
                log.warning("upstream lost", upstream=self.name, reason=reason)
            self.drop(session)
            self._listener.lists_changed()

    def _declared(self, call: RelayedCall | None) -> JsonObject:
        if self.config.session == "shared":
            return {}
        if call is not None and call.key != SHARED:
            return call.declared
        return allowed(self.config, EVERYTHING)

    def _check_room(self) -> None:
        if len(self._held) + len(self._connecting) < self.config.max_sessions:
            return
        # Close the least recently used session.
        unused = next((session for session in self._held.values() if not session.open_calls), None)
        if unused is None:
            message = f"{self.name} already has {self.config.max_sessions} sessions (max_sessions)"
            raise OverLimitError(message, retry_after=1, limit=f"upstreams.{self.name}.max_sessions")
        self.drop(unused)

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._in_use_by += 1
        self._is_quiet.clear()
        try:
            yield
        finally:
            self._in_use_by -= 1
            if not self._in_use_by:
                self._is_quiet.set()

    def _end(self, session: Session) -> None:
        self._closing.begin(session.close(), name=f"end a session with {self.name}")

    def _can_send_again(self, session: Session, error: UpstreamError, *, is_repeatable: bool) -> bool:
        if isinstance(error, SessionLostError):
            self._lost(session, str(error))
            return True
        if isinstance(error, UnreachableError):
            # A server of the other era could have replaced a stateless server.
            if isinstance(error, NotMcpError) and session.is_stateless:
                self.drop(session)
                return True
            if not isinstance(error, ANSWERS):
                self.circuit.connect_failed(str(error))
                raise self.circuit.unreachable(str(error)) from error
            return False
        # The request could have been started. Over HTTP, a session outlives its connections.
        if isinstance(error, ConnectionLostError) and session.is_closed:
            self.drop(session)
        return isinstance(error, ConnectionLostError) and is_repeatable

    async def _permit(self, call: RelayedCall) -> ConcurrencyPermit:
        queue = _QUEUE if self.config.queue is None else self.config.queue
        limit = (self.config.concurrency or _CONCURRENCY, queue)
        if not self._semaphore.try_acquire(limit):
            name = f"upstreams.{self.name}.concurrency"
            await self._semaphore.acquire(limit, caller=call.key, deadline=monotonic() + _FOREVER, name=name)
        return ConcurrencyPermit((self._semaphore,))

    def _answered(self, outcome: str, began: float) -> None:
        self._count(outcome, began)
        self._note_response()

    def _count(self, outcome: str, began: float) -> None:
        seconds = monotonic() - began
        self.calls[outcome] += 1
        self.seconds += seconds
        self.within[bisect_left(SECONDS_BUCKETS, seconds)] += 1

    def _note_response(self) -> None:
        self.last_response_at = monotonic()
        self.circuit.answered(is_connected=bool(self.sessions))
