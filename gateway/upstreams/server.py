import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Final

import structlog

from gateway.config.definition_source import DocumentStore
from gateway.config.models.backends import Connection
from gateway.config.models.document import Document
from gateway.config.models.upstreams import Upstream
from gateway.errors import OverLimitError, RpcError
from gateway.json_types import Json
from gateway.upstreams.client.link import Unreadable
from gateway.upstreams.client.session import Session
from gateway.upstreams.failures import UpstreamError
from gateway.upstreams.pool import MAX_BACKOFF, SessionPool
from gateway.upstreams.server_lists import CUT, ServerLists, discover, recall, remember
from gateway.upstreams.server_spec import ServerSpec

log: Final = structlog.get_logger(__name__)

SETTLE_SECONDS: Final = 0.2
_MAX_NAMED: Final = 5
_ONLY_IN_CLIENT_SESSION: Final = (
    "lists {} only in the session of a client, so the gateway does not list these definitions. Set"
    " `session: shared` to use one session for all clients"
)
_CHECK_SECONDS: Final = 5.0
_LIST_SECONDS: Final = 0.5
"""The minimum time between two reads of the lists."""
_REPORT_SECONDS: Final = 60.0


class UpstreamServer:
    """Keeps the lists and the watched resources of one server up to date."""

    def __init__(  # noqa: PLR0913 - what it is, and whom it tells
        self,
        name: str,
        config: Upstream,
        spec: ServerSpec,
        *,
        documents: DocumentStore | None,
        changed: Callable[[], None],
        updated: Callable[[str], None],
        connection: Connection | None,
        starting: asyncio.Semaphore,
        inherited: ServerLists | None = None,
    ) -> None:
        """Create the server without starting it.

        `changed` is called when the lists have changed, and `updated` with the URI of an updated resource. `connection`
        is the connection that `config` names. `starting` limits how many child processes start at the same time.
        `inherited` contains lists from before a configuration change, which are used until this server responds.
        """
        self.name: Final = name
        self._wake: Final = asyncio.Event()
        self.pool: Final = SessionPool(name, config, spec, listener=self, starting=starting)
        self._documents: Final = documents
        self._connection: Final = connection
        self._watched: frozenset[str] = frozenset()
        self.is_watching: Final = asyncio.Event()
        """Set once the sessions watch the current resources, or connecting has failed."""
        self.is_watching.set()
        self._changed: Final = changed
        self._updated: Final = updated
        self.known: Final = asyncio.Event()
        """Set once the lists are known, or the server could not be reached."""
        self._is_stale = True
        self._is_remembered = False
        self._note_on_sessions = ""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.lists = inherited
        self._is_inherited = inherited is not None
        self.is_served = False
        """Whether the lists are or were part of the catalog."""
        self._malformed = 0
        self._reported_at = -math.inf
        self._not_before = -math.inf
        self._failed_lists = 0
        self._ask_again_at = math.inf

    @property
    def config(self) -> Upstream:
        return self.pool.config

    @property
    def _digest(self) -> str:
        # A digest, because arguments and the URL can contain secrets.
        facts = (self.config.argv, self.config.cwd, self.config.url, self.config.connection, self.config.kind)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def is_for(self, config: Upstream, document: Document) -> bool:
        """Return whether the open sessions can be kept with a new configuration of the server."""
        is_same = all(getattr(self.config, key) == getattr(config, key) for key in _CONNECTING)
        return is_same and document.connections.get(config.connection or "") == self._connection

    def answers_for(self, config: Upstream, document: Document) -> bool:
        """Return whether this server sent the current lists, and is still configured in the same way."""
        return not self._is_inherited and self.is_for(config, document)

    def watch(self, uris: frozenset[str]) -> None:
        if uris != self._watched:
            self._watched = uris
            self.is_watching.clear()
            self._wake.set()

    async def session_opened(self, watch: Callable[[frozenset[str]], Awaitable[None]]) -> None:
        self._wake.set()
        # The first call may update a watched resource.
        if self._watched and self._offers_updates:
            with suppress(UpstreamError):  # the call reports the same error
                await watch(self._watched)

    def lists_changed(self) -> None:
        """Read the lists again soon. After a session has ended, notifications could have been missed."""
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
        self.pool.forget_failures()
        self._is_stale, self._is_remembered, self._not_before = True, False, -math.inf
        self._wake.set()

    def follow(self, config: Upstream) -> None:
        self.pool.config = config
        self._wake.set()

    async def start(self) -> None:
        """Load the stored lists and start the background task. Repeated calls have no effect."""
        if self._has_begun:
            return
        remembered = None if self._is_inherited else await recall(self._documents, self.name, server=self._digest)
        if self._has_begun:
            return
        if remembered is not None:
            self.lists = remembered
            # The lists of an HTTP server are read after the start. A child process is not started for its lists.
            self._is_remembered = self.pool.is_child
            self.known.set()
            self._changed()
        self._task = asyncio.create_task(self._run(), name=f"upstream {self.name}")

    async def retire(self) -> None:
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
        """The state of the pool.

        If the pool is `up`, the state is `connecting` until the lists are served, and `degraded` while a list is
        missing.
        """
        state = self.pool.state
        if state == "up" and not self.is_served:
            return "connecting"
        return "degraded" if state == "up" and self.lists is not None and self.lists.missing else state

    def status(self) -> dict[str, Json]:
        lists, pool = self.lists, self.pool
        shown: dict[str, Json] = {
            "state": self.state,
            "sessions": len(pool.sessions),
            "calls": sum(pool.calls.values()),
            "restarts": pool.restarts,
        }
        if pool.known_handshake is not None:
            shown["transport"] = pool.known_handshake[0]
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
        now = monotonic()
        if now < self._not_before or not (self._is_stale or now >= self._ask_again_at):
            return False
        # A lazy child process with stored lists is not started only to read lists.
        return bool(self.pool.sessions) or self.config.start == "eager" or not self._is_remembered

    async def _run(self) -> None:
        while True:
            watched = self._watched
            if monotonic() >= self.pool.circuit.next_try:
                try:
                    await self._check()
                except OverLimitError as error:  # clients use all sessions
                    log.debug("upstream not checked", upstream=self.name, reason=str(error))
                except (UpstreamError, TimeoutError, RpcError) as error:
                    self._record_failure(error)
                except Exception as error:  # Boundary: the server must be checked again after an internal error
                    log.exception("checking an upstream failed", upstream=self.name)
                    self._record_failure(error)
                self.known.set()
            if watched == self._watched:
                self.is_watching.set()
            # Done here, so that no session is closed while its lists are read.
            self.pool.close_idle()
            await self._pause()

    async def _check(self) -> None:
        circuit, pool = self.pool.circuit, self.pool
        # The circuit refuses calls, so only a probe can close it.
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
        if not self._offers_updates:
            return
        if self._watched and not self.pool.sessions:
            await self.pool.session_for(None)
        for session in self.pool.sessions:  # a server can announce an update in only one of its sessions
            await session.watch(self._watched)

    @property
    def _offers_updates(self) -> bool:
        return self.lists is not None and self.lists.subscribes

    def _record_failure(self, error: Exception) -> None:
        reason = str(error) or "no response in time"
        if self.pool.concerns_caller(error):
            self.pool.circuit.reason = reason  # only shown, because calls with credentials can succeed
        elif monotonic() >= self.pool.circuit.next_try:
            self.pool.circuit.connect_failed(reason)
        if self.pool.circuit.warning.is_due():
            log.warning("upstream failed", upstream=self.name, reason=reason)

    @property
    def _is_health_due(self) -> bool:
        every = self.config.health.total_seconds()
        is_quiet = monotonic() - self.pool.last_response_at >= every
        return bool(every) and self.config.start == "eager" and bool(self.pool.sessions) and is_quiet

    async def _ask_for_lists(self) -> None:
        # Set first, because changes can be announced during the read.
        self._is_stale = False
        self._not_before = monotonic() + _LIST_SECONDS  # a server can announce changes without end
        try:
            lists = await self.pool.in_shared_session(self._discover)
        except BaseException:
            self._is_stale = True
            raise
        self._is_remembered = True
        self._plan_retry(lists)
        await self._compare_sessions(lists)
        if lists == self.lists and not self._is_inherited:
            return
        self.lists, self._is_inherited = lists, False
        await remember(self._documents, self.name, lists, server=self._digest)
        self._changed()

    async def _discover(self, session: Session) -> ServerLists:
        return await discover(session, before=None if self._is_inherited else self.lists)

    async def read(self, uri: str) -> Json:
        """Read a resource in the shared session, and return its contents."""
        result = await self.pool.in_shared_session(lambda session: session.request("resources/read", {"uri": uri}))
        return result.get("contents")

    async def _compare_sessions(self, lists: ServerLists) -> None:
        for session in filter(Session.take_list_change, self.pool.client_sessions):
            with suppress(UpstreamError, RpcError, TimeoutError):
                found = await self.pool.ask(session, self._discover)
                names = sorted(found.names - lists.names)
                note = (
                    _ONLY_IN_CLIENT_SESSION.format(", ".join(f"`{name}`" for name in names[:_MAX_NAMED]))
                    if names
                    else ""
                )
                if note and note != self._note_on_sessions:
                    log.warning("upstream has more definitions in a client's session", upstream=self.name, note=note)
                self._note_on_sessions = note

    def _plan_retry(self, lists: ServerLists) -> None:
        failed = {name: reason for name, reason in lists.missing.items() if not reason.startswith(CUT)}
        if failed and not self._failed_lists:
            log.warning("upstream lists could not be read", upstream=self.name, reasons=failed)
        self._failed_lists = self._failed_lists + 1 if failed else 0
        delay = min(2.0 ** min(self._failed_lists, 10), MAX_BACKOFF)
        self._ask_again_at = monotonic() + delay if failed else math.inf

    async def _pause(self) -> None:
        pause = _CHECK_SECONDS
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
        # Cleared last, because the next check covers all announcements up to now.
        self._wake.clear()


# Other keys, such as `tools` and `timeout`, can change without a new connection.
_CONNECTING: Final = (
    *("command", "args", "env", "cwd", "sandbox", "url", "headers", "type", "transport", "connection"),
    *("allow_private", "tls", "auth", "era", "session", "sampling", "elicitation", "roots"),
)
