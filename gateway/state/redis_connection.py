"""The connection to Redis (or Valkey), which detects outages and recovery.

The store is unavailable if this process cannot write to it. Causes are a lost connection, a wrong password, full memory
or a read-only server. A small write each second detects an outage, and shows other replicas that this process is alive.

Operations are retried for up to `WAIT_SECONDS`, so commands and scripts must be idempotent. `attempt` runs scripts that
are not idempotent. It runs a script at most once, and fails immediately during an outage.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final, Self, TypeVar

import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.errors import StoreUnavailableError
from gateway.json_types import Json
from gateway.state.redis_url import RedisUrl, close

log: Final = structlog.get_logger(__name__)

T = TypeVar("T")

WAIT_SECONDS: Final = 2.0
"""The maximum time that an operation waits for the store."""
REPLICA_SECONDS: Final = 15
"""A replica that has not written to the store for this time counts as dead."""
_MAX_CONCURRENT: Final = 16
"""The maximum number of concurrent commands. Waiting is faster than opening more connections in a burst."""
_PROBE_SECONDS: Final = 1.0
_FIRST_RETRY_SECONDS: Final = 0.1
_REFUSALS: Final = frozenset({"CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN"})
"""Error codes of a server that is running but cannot write at the moment."""


class RedisConnection:
    """The connection to the store that replicas share. Opening the connection succeeds even if Redis is unavailable."""

    def __init__(self, url: RedisUrl, *, replica: str) -> None:
        self.url: Final = url
        self.prefix: Final = url.prefix
        self.replica: Final = replica
        self.unavailable_since: datetime | None = None
        self.operations = 0
        self.seconds = 0.0
        self.faults: Final[dict[str, int]] = {}
        from redis.exceptions import RedisError  # noqa: PLC0415 - optional dependency

        self._errors: Final = (RedisError, OSError, TimeoutError)
        self._reason = ""
        self._client: Final = url.client(connect_seconds=WAIT_SECONDS)
        self._permits: Final = asyncio.Semaphore(_MAX_CONCURRENT)
        self._callbacks: Final[list[Callable[[], Awaitable[None]]]] = []
        self._back: Final = asyncio.Event()
        self._probe_now: Final = asyncio.Event()
        self._tasks: Final = BackgroundTasks()
        self._was_unavailable: Final = asyncio.Event()
        """Set if the callbacks must run as soon as the store is available again."""

    async def __aenter__(self) -> Self:
        await self._probe()
        self._tasks.begin(self._watch(), name="store: watch")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.cancel()
        with suppress(*self._errors):
            async with asyncio.timeout(WAIT_SECONDS):
                # Delete the key, so that other replicas notice at once that this replica has ended.
                if not self.is_unavailable:
                    await self._client.execute_command("DEL", self.key_of(self.replica))
                await close(self._client)

    @property
    def is_unavailable(self) -> bool:
        return self.unavailable_since is not None

    @property
    def problem(self) -> str:
        """The reason why the store cannot be used. Empty while the store is available."""
        if self.unavailable_since is None:
            return ""
        since = self.unavailable_since.isoformat(timespec="seconds")
        return f"store: redis has been unavailable since {since} ({self._reason})"

    def status(self) -> dict[str, Json]:
        return {
            "url": self.url.masked,
            "problem": self.problem or None,
            "operations": self.operations,
            "seconds": round(self.seconds, 3),
        }

    def key_of(self, replica: str) -> str:
        """Return the name of the Redis key that exists while a replica is alive."""
        return f"{self.prefix}replica:{replica}"

    async def command(self, *words: str | bytes | float) -> Json:
        """Send a command and return its reply. Raise StoreUnavailableError if no reply arrives in time."""
        return await self._retry(lambda: self._client.execute_command(*words))

    async def run(self, script: str, keys: Sequence[str], *values: str | bytes | float) -> Json:
        """Run an idempotent Lua script and return its reply, like `command`. All keys must be in one Cluster slot."""
        return await self._retry(lambda: self._evaluate(script, keys, values))

    async def attempt(self, script: str, keys: Sequence[str], *values: str | bytes | float) -> Json:
        """Run a script that is not idempotent, without retries. Raise StoreUnavailableError during an outage."""
        if self.is_unavailable:
            raise StoreUnavailableError(self.problem)
        began = asyncio.get_running_loop().time()
        with self._noting_faults():
            async with asyncio.timeout(WAIT_SECONDS), self._permits:
                answer = await self._evaluate(script, keys, values)
        self._count(began)
        return answer

    async def claim(self, key: str, *, seconds: float) -> bool:
        """Create a key that expires after `seconds`. Return False if the key already exists."""
        mark = secrets.token_hex(8)  # a command whose response was lost is retried, and then finds its own mark
        # NX with GET returns the existing value: https://redis.io/docs/latest/commands/set (since Redis 7.0).
        left = max(1, round(seconds * 1000))
        found = await self._retry(lambda: self._client.set(key, mark, nx=True, get=True, px=left))
        return found is None or found == mark.encode()

    async def read_stream(self, key: str, *, after: str, seconds: float) -> Sequence[tuple[str, Mapping[str, bytes]]]:
        """Wait up to `seconds` for entries after the id `after` of a stream. Return the entries with their ids."""
        await self._wait(asyncio.get_running_loop().time() + WAIT_SECONDS)
        with self._noting_faults():
            async with asyncio.timeout(seconds + WAIT_SECONDS):
                # Without a permit, because a blocking read uses a separate connection.
                found: Json = await self._client.xread({key: after}, block=max(1, int(seconds * 1000)), count=100)
        entries = found[0][1] if found else []
        return [
            (entry.decode(), {name.decode(errors="replace"): value for name, value in fields.items()})
            for entry, fields in entries
        ]

    async def returned(self) -> None:
        # The store could be unavailable again before this task resumes.
        while self.is_unavailable:
            await self._back.wait()

    def on_return(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Register a callback that runs at the first use of the store and after each outage."""
        self._callbacks.append(callback)

    async def open(self) -> None:
        """Run the callbacks for the first use, now or as soon as the store is available."""
        if self.is_unavailable:
            self._was_unavailable.set()
        else:
            self._was_unavailable.clear()
            await self._run_callbacks()
        # Run the callbacks in a separate task, so that probes continue and show that this replica is alive.
        self._tasks.begin(self._run_callbacks_after_outages(), name="callbacks of the store")

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_SECONDS
        while True:
            await self._wait(deadline)
            began = loop.time()
            # Retry until the deadline, because a failover takes a second or two.
            with suppress(StoreUnavailableError), self._noting_faults():
                async with asyncio.timeout_at(deadline), self._permits:
                    answer = await attempt()
                self._count(began)
                return answer

    async def _evaluate(self, script: str, keys: Sequence[str], values: Sequence[str | bytes | float]) -> Json:
        from redis.exceptions import NoScriptError  # noqa: PLC0415 - optional dependency

        digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        try:
            return await self._client.execute_command("EVALSHA", digest, len(keys), *keys, *values)
        # Scripts are lost after a restart or failover (https://redis.io/docs/latest/commands/evalsha).
        except NoScriptError:
            return await self._client.execute_command("EVAL", script, len(keys), *keys, *values)

    @contextmanager
    def _noting_faults(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            if not _is_fault(error):
                raise
            self._note_unavailable(error)
            raise StoreUnavailableError(self.problem) from error

    def _count(self, began: float) -> None:
        self.operations += 1
        self.seconds += asyncio.get_running_loop().time() - began

    async def _wait(self, deadline: float) -> None:
        if not self.is_unavailable:
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self.returned()
        except TimeoutError:
            raise StoreUnavailableError(self.problem) from None

    def _note_unavailable(self, error: Exception) -> None:
        name = type(error).__name__
        self.faults[name] = self.faults.get(name, 0) + 1
        reason = "no response" if isinstance(error, TimeoutError) else str(error) or name
        if self.unavailable_since is None:
            self.unavailable_since = datetime.now(UTC)
            self._back.clear()
            self._was_unavailable.set()
            self._reason = reason
            log.error("store is unavailable", url=self.url.masked, reason=reason)
        elif reason != self._reason:
            self._reason = reason
            log.error("store is still unavailable", url=self.url.masked, reason=reason)
        self._probe_now.set()

    async def _watch(self) -> None:
        pause = _FIRST_RETRY_SECONDS
        while True:
            self._probe_now.clear()
            was_unavailable = self.is_unavailable
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if was_unavailable else _PROBE_SECONDS):
                    # During an outage, wait for the whole delay, because failed calls would otherwise start probes.
                    await (asyncio.Event() if was_unavailable else self._probe_now).wait()
            await self._probe()
            pause = min(_PROBE_SECONDS, pause * 2) if self.is_unavailable else _FIRST_RETRY_SECONDS

    async def _probe(self) -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._client.execute_command("SET", self.key_of(self.replica), b"", "EX", REPLICA_SECONDS)
        except self._errors as error:
            self._note_unavailable(error)
            return
        if self.unavailable_since is not None:
            log.info(
                "store is available again",
                url=self.url.masked,
                unavailable_since=self.unavailable_since.isoformat(timespec="seconds"),
            )
            self.unavailable_since = None
        self._back.set()

    async def _run_callbacks_after_outages(self) -> None:
        while await self._was_unavailable.wait():
            await self.returned()
            self._was_unavailable.clear()
            await self._run_callbacks()

    async def _run_callbacks(self) -> None:
        for callback in self._callbacks:
            try:
                await callback()
            except StoreUnavailableError:
                self._was_unavailable.set()
                return
            except Exception:  # Boundary: a bug in one callback must not prevent the others.
                log.exception("a component failed after the store returned")


def _is_fault(error: Exception) -> bool:
    from redis.exceptions import ResponseError  # noqa: PLC0415 - optional dependency

    # redis-py raises subclasses of ResponseError (ReadOnlyError, NoPermissionError, …) if a server refuses to work.
    return type(error) is not ResponseError or str(error).partition(" ")[0] in _REFUSALS
