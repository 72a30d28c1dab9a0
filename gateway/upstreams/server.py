"""One upstream while the file names it: its sessions, and its lists kept up to date by a task of its own."""

import asyncio
import hashlib
import math
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final

import structlog

from gateway.config.models.backends import Connection
from gateway.config.models.document import Document
from gateway.config.models.upstreams import Upstream
from gateway.errors import OverLimitError, RpcError
from gateway.json_types import Json, JsonObject
from gateway.upstreams.circuit_breaker import MAX_BACKOFF
from gateway.upstreams.client.link import Unreadable
from gateway.upstreams.client.session import Session
from gateway.upstreams.failures import UpstreamError
from gateway.upstreams.pool import SessionPool
from gateway.upstreams.server_lists import CUT, RememberedLists, ServerLists, discover
from gateway.upstreams.server_spec import ServerSpec

log: Final = structlog.get_logger(__name__)

SETTLE_SECONDS: Final = 0.2
"""The time for which announcements of one upstream are put together."""
_MAX_NAMED: Final = 5
_ONLY_THERE: Final = (
    "offers {} only in a client's own session, so it is not listed; with `session: shared`, all clients use one"
    " session, and its lists are offered"
)
_LOOK_SECONDS: Final = 5.0
_STORM_SECONDS: Final = 1.0
"""Lists that are asked for again within this time and twice the last pause wait longer the next time."""
_STORM_WARNING: Final = 16 * SETTLE_SECONDS
"""The pause that is worth a warning."""
_REPORT_SECONDS: Final = 60.0
"""The least time between two reports of malformed JSON."""


class UpstreamServer:
    """Keeps in touch with one upstream from `start` to `close`. The `Listener` of its sessions."""

    def __init__(  # noqa: PLR0913 - what it is, and whom it tells
        self,
        name: str,
        config: Upstream,
        spec: ServerSpec,
        *,
        memory: RememberedLists,
        changed: Callable[[], None],
        updated: Callable[[str], None],
        connection: Connection | None,
        starting: asyncio.Semaphore,
        inherited: ServerLists | None = None,
    ) -> None:
        """Do nothing yet.

        Args:
            name: its key in the file.
            config: its entry.
            spec: how to connect to it.
            memory: remembers its lists.
            changed: called when its lists are others than before.
            updated: called with a URI of it when a resource was updated.
            connection: the connection that its entry names.
            starting: bounds how many child processes start at the same time.
            inherited: what the server offered that its entry named before: it stays on offer until this one answers.
        """
        self.name: Final = name
        self._wake: Final = asyncio.Event()
        self.pool: Final = SessionPool(name, config, spec, listener=self, starting=starting)
        self._memory: Final = memory
        self._connection: Final = connection
        self._watched: frozenset[str] = frozenset()
        self._is_watching: Final = asyncio.Event()
        """Whether each session watches what is to be watched, or was asked to in vain."""
        self._is_watching.set()
        self._changed: Final = changed
        self._updated: Final = updated
        self._known: Final = asyncio.Event()
        self._is_stale = True
        """Whether the lists may be others than those that are known."""
        self._is_remembered = False
        self._note_on_sessions = ""
        """What only the sessions of some clients offer."""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.lists = inherited
        self._is_inherited = inherited is not None
        """Whether its lists are still those of the server before it."""
        self.is_served = False
        """Whether the catalog has what it offers, or had it."""
        self._malformed = 0
        """How many messages of it were not valid JSON."""
        self._reported_at = -math.inf
        """When malformed JSON was reported last."""
        self._list_pause = 0.0
        """How long its lists are not asked for again: longer and longer while changes are announced without end."""
        self._not_before = -math.inf
        """When they may be asked for again."""
        self._failed_lists = 0
        """How often in a row a list could not be had."""
        self._ask_again_at = math.inf
        """When to ask for it again."""
        self.is_awaited = False
        """Whether somebody waits for its first lists, and will read them without being told."""

    @property
    def config(self) -> Upstream:
        return self.pool.config

    def is_for(self, config: Upstream, document: Document) -> bool:
        """Whether an entry connects to the same server in the same way, so that its sessions may go on."""
        is_same = all(getattr(self.config, key) == getattr(config, key) for key in _CONNECTING)
        return is_same and document.connections.get(config.connection or "") == self._connection

    def answers_for(self, config: Upstream, document: Document) -> bool:
        """Whether its lists are what the server of an entry offers."""
        return not self._is_inherited and self.is_for(config, document)

    def watch(self, uris: frozenset[str]) -> None:
        """Have the upstream tell of updates of these resources, and no others."""
        if uris != self._watched:
            self._watched = uris
            self._is_watching.clear()
            self._wake.set()

    async def watching(self) -> None:
        """Wait until the upstream tells of updates of what is watched, or it could not be reached."""
        await self._is_watching.wait()

    async def session_opened(self, session: Session) -> None:
        self._wake.set()
        # The first call in it may change what is watched.
        if self._watched and self._offers_updates:
            with suppress(UpstreamError):  # a call in it will meet the same
                await session.watch(self._watched)

    def lists_changed(self) -> None:
        """Ask again soon; the end of a session counts, too: what changed since was not announced."""
        self._is_stale = True
        self._wake.set()

    def resource_updated(self, uri: str) -> None:
        self._updated(uri)

    def unreadable(self, message: Unreadable) -> None:
        self._malformed += 1
        if (now := monotonic()) < self._reported_at + _REPORT_SECONDS:
            return
        self._reported_at = now
        log.warning("upstream sent malformed JSON", upstream=self.name, reason=message.reason, excerpt=message.excerpt)

    def reconnect(self) -> None:
        """Connect anew now, whatever was to be waited for, and ask for its lists again."""
        self.pool.forget_failures()
        self._is_stale, self._is_remembered, self._not_before = True, False, -math.inf
        self._wake.set()

    def follow(self, config: Upstream) -> None:
        """Take up an entry that connects to the same server in the same way."""
        self.pool.config = config
        self._wake.set()

    async def start(self) -> None:
        """Recall what it offered last, and begin to keep in touch; does nothing where that was done."""
        if self._has_begun:
            return
        remembered = None if self._is_inherited else await self._memory.recall(self.name)
        if self._has_begun:  # meanwhile
            return
        if remembered is not None:
            self.lists = remembered
            # A child is not started for its lists; an HTTP server is asked for them once.
            self._is_remembered = self.pool.is_child
            self._known.set()
            self._tell()
        self._task = asyncio.create_task(self._keep(), name=f"upstream {self.name}")

    async def known(self) -> None:
        """Wait until its lists are known, from memory or from itself, or it could not be reached."""
        await self._known.wait()

    async def retire(self) -> None:
        """Close once the calls in flight have ended; each has a deadline of its own."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        try:
            await self.pool.quiet()
        finally:
            await self.close()

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.pool.close()

    @property
    def _has_begun(self) -> bool:
        return self._task is not None or self._is_closed

    @property
    def state(self) -> str:
        """The state of its sessions; `degraded`, too, where a list of it could not be read.

        `connecting`, too, until what it offers is served.
        """
        state = self.pool.state
        if state == "up" and not self.is_served:
            return "connecting"
        return "degraded" if state == "up" and self.lists is not None and self.lists.missing else state

    def status(self) -> dict[str, Json]:
        """The entry of the status."""
        lists, pool = self.lists, self.pool
        shown: dict[str, Json] = {
            "state": self.state,
            "sessions": len(pool.sessions),
            "calls": sum(pool.calls.values()),
            "restarts": pool.restarts,
        }
        if pool.known_way is not None:
            shown["transport"] = pool.known_way.transport
        if lists is not None:
            shown["revision"] = lists.revision
            shown["offers"] = {
                "tools": len(lists.tools),
                "resources": len(lists.resources) + len(lists.templates),
                "prompts": len(lists.prompts),
            }
            if lists.missing:
                shown["missing"] = dict(lists.missing)
        if self._note_on_sessions:
            shown["note"] = self._note_on_sessions
        if self._malformed:
            shown["malformed_messages"] = self._malformed
        if pool.circuit.reason:
            shown["reason"] = pool.circuit.reason
            shown["next_try_seconds"] = pool.circuit.seconds_to_next_try
        return shown

    @property
    def _wants_lists(self) -> bool:
        """Whether to ask for lists now: a remembered lazy child is not started for them."""
        now = monotonic()
        if now < self._not_before or not (self._is_stale or now >= self._ask_again_at):
            return False
        return bool(self.pool.sessions) or self.config.start == "eager" or not self._is_remembered

    async def _keep(self) -> None:
        while True:
            watched = self._watched
            if monotonic() >= self.pool.circuit.next_try:
                try:
                    await self._look()
                except OverLimitError as error:  # callers have all the sessions: the next look may find room
                    log.debug("upstream not asked", upstream=self.name, reason=str(error))
                except (UpstreamError, TimeoutError, RpcError) as error:
                    self._note(error)
                self._known.set()
            if watched == self._watched:
                self._is_watching.set()
            # In the same task as the rest, so that no session is closed while its lists are asked for.
            self.pool.close_idle()
            await self._pause()

    async def _look(self) -> None:
        circuit, pool = self.pool.circuit, self.pool
        # An open circuit refuses all calls: an answer to this probe closes it. Without one nobody would find out that
        # a required upstream is back, nor one whose sessions have outlived their connections.
        if circuit.is_open or (circuit.is_backing_off and (pool.sessions or self.config.required)):
            await pool.probe()
        if self._wants_lists:
            await self._ask_for_lists()
        elif self._is_health_due:
            await self.pool.probe()
        elif self.config.start == "eager" and not self.pool.sessions:
            await self.pool.session_for(None)
        await self._subscribe()

    async def _subscribe(self) -> None:
        """Watch what is wanted, in each session: where clients have their own, an update may be seen in one alone."""
        if not self._offers_updates:
            return
        if self._watched and not self.pool.sessions:
            await self.pool.session_for(None)
        for session in self.pool.sessions:
            await session.watch(self._watched)

    @property
    def _offers_updates(self) -> bool:
        return self.lists is not None and self.lists.subscribes

    def _note(self, error: Exception) -> None:
        reason = str(error) or "no answer in time"
        if self.pool.blames_nobody(error):
            self.pool.circuit.reason = reason  # and callers with tokens are let through
        elif monotonic() >= self.pool.circuit.next_try:
            self.pool.circuit.connect_failed(reason)
        if self.pool.circuit.warning.is_due():
            log.warning("upstream failed", upstream=self.name, reason=reason)

    @property
    def _is_health_due(self) -> bool:
        every = self.config.health.total_seconds()
        is_quiet = monotonic() - self.pool.said_at >= every
        return bool(every) and self.config.start == "eager" and bool(self.pool.sessions) and is_quiet

    async def _ask_for_lists(self) -> None:
        # Before the lists are asked for: what is announced meanwhile makes them stale again.
        self._is_stale = False
        self._damp()
        try:
            lists = await self.pool.in_session_of_nobody(self._discover)
        except BaseException:
            self._is_stale = True
            raise
        self._is_remembered = True
        self._plan_retry(lists)
        await self._compare_sessions(lists)
        if lists == self.lists and not self._is_inherited:
            return
        self.lists, self._is_inherited = lists, False
        await self._memory.remember(self.name, lists)
        self._tell()

    async def _discover(self, session: Session) -> ServerLists:
        async with asyncio.timeout(self.config.connect_timeout.total_seconds()):
            return await discover(session, before=None if self._is_inherited else self.lists)

    async def read(self, uri: str) -> Json:
        """Read a resource without a client, and return its contents.

        Raises:
            RpcError: the upstream's own error.
            UpstreamError: there was no response.
        """

        async def ask(session: Session) -> JsonObject:
            async with asyncio.timeout(self.config.connect_timeout.total_seconds()):
                return await session.request("resources/read", {"uri": uri})

        return (await self.pool.in_session_of_nobody(ask)).get("contents")

    async def _compare_sessions(self, lists: ServerLists) -> None:
        """Note what a client's session offers and the session of nobody does not: it is not offered to anyone."""
        for session in filter(Session.take_list_change, self.pool.client_sessions):
            with suppress(UpstreamError, RpcError, TimeoutError):
                names = sorted((await self._discover(session)).names - lists.names)
                note = _ONLY_THERE.format(", ".join(f"`{name}`" for name in names[:_MAX_NAMED])) if names else ""
                if note and note != self._note_on_sessions:
                    log.warning("upstream offers more to one client", upstream=self.name, note=note)
                self._note_on_sessions = note

    def _damp(self) -> None:
        """Ask less and less often while an upstream announces changes without end."""
        now, before = monotonic(), self._list_pause
        is_storm = now < self._not_before + before + _STORM_SECONDS
        self._list_pause = min(max(2 * before, SETTLE_SECONDS), MAX_BACKOFF) if is_storm else 0.0
        self._not_before = now + self._list_pause
        if before < _STORM_WARNING <= self._list_pause:
            log.warning(
                "upstream announces changes without end; its lists are asked for less often", upstream=self.name
            )

    def _plan_retry(self, lists: ServerLists) -> None:
        """Ask again for lists that could not be had; those that were cut would be cut again."""
        failed = {name: reason for name, reason in lists.missing.items() if not reason.startswith(CUT)}
        if failed and not self._failed_lists:
            log.warning("lists of an upstream could not be read", upstream=self.name, reasons=failed)
        self._failed_lists = self._failed_lists + 1 if failed else 0
        delay = min(2.0 ** min(self._failed_lists, 10), MAX_BACKOFF)
        self._ask_again_at = monotonic() + delay if failed else math.inf

    def _tell(self) -> None:
        # At the start somebody waits for these lists and reads them: a reload would do it all again.
        if not self.is_awaited:
            self._changed()

    async def _pause(self) -> None:
        """Wait for a reason to look again: an announcement, a time to try again, or a while."""
        pause = _LOOK_SECONDS
        for due in (self.pool.circuit.next_try, self._ask_again_at, self._not_before):
            if (until_due := due - monotonic()) > 0:
                pause = min(pause, until_due)
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
                if self._is_stale:
                    await asyncio.sleep(SETTLE_SECONDS)
        except TimeoutError:
            pass
        # After the settling: what was announced meanwhile is seen by the look that follows.
        self._wake.clear()


# What is not among them (`tools`, `timeout`, `tags` …) changes without a new connection.
_CONNECTING: Final = (
    *("command", "args", "env", "cwd", "sandbox", "url", "headers", "type", "transport", "connection"),
    *("allow_private", "tls", "auth", "era", "session", "sampling", "elicitation", "roots"),
)


def server_digest(config: Upstream) -> str:
    """Tell servers apart, for the memory, by a digest: arguments and URLs may hold secrets."""
    facts = (config.argv, config.cwd, config.url, config.connection, config.kind)
    return hashlib.sha256(repr(facts).encode()).hexdigest()
