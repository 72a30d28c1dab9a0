"""Tells other replicas about changes that plugins make at run time and about sign-ins of users.

For replicas that start later, the store records whether a plugin has enabled or disabled a primitive. If several
replicas change a primitive at once, all replicas apply the state in the store.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.catalog.store import CatalogStore
from gateway.errors import ExecutionError, StoreUnavailableError
from gateway.events import Events, PluginChange, SignInsChanged
from gateway.json_types import Json
from gateway.plugin import ListKind
from gateway.protocol.notifier import ChangeNotifier
from gateway.state.replica import Replica

log: Final = structlog.get_logger(__name__)

_KIND: Final = "announcement"
_SIGN_IN: Final = "sign-in"
# This is several refresh intervals, so that one lost refresh does not enable a primitive again.
_KEPT_SECONDS: Final = 60
_REFRESH_SECONDS: Final = 20.0
_SWITCHES: Final = frozenset({"enabled", "disabled"})
_LISTS: Final[dict[str, ListKind]] = {"tools": "tools", "prompts": "prompts", "resources": "resources"}


class SharedChanges:
    def __init__(self, replica: Replica, *, store: CatalogStore, notifier: ChangeNotifier, events: Events) -> None:
        self._replica: Final = replica
        self._store: Final = store
        self._notifier: Final = notifier
        self._events: Final = events
        self._key: Final = f"{replica.store.prefix}switched"
        self._in_order: Final = asyncio.Lock()
        self._tasks: Final = BackgroundTasks()
        events.subscribe(PluginChange, self.tell)
        events.subscribe(SignInsChanged, self._tell_of_sign_in)
        replica.mailbox.on(_KIND, self._take)
        replica.mailbox.on(_SIGN_IN, self._take_sign_in)
        replica.store.on_return(self._take_disabled)

    async def __aenter__(self) -> Self:
        self._tasks.begin(self._refresh(), name="shared changes")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.cancel()

    def tell(self, change: PluginChange) -> None:
        self._tasks.begin(self._tell(change.what, change.kind, change.name), name="shared changes")

    def _tell_of_sign_in(self, change: SignInsChanged) -> None:
        if not change.is_of_replica:
            self._tasks.begin(self._send_sign_in(change.entry), name="shared changes")

    async def _send_sign_in(self, entry: str) -> None:
        # If the message is lost, other replicas find the sign-in when they next connect to the upstream server.
        with suppress(StoreUnavailableError):
            await self._replica.mailbox.tell_all(_SIGN_IN, entry.encode())

    async def _take_sign_in(self, entry: bytes) -> bytes:
        self._events.publish(SignInsChanged(entry.decode(), is_of_replica=True))
        return b""

    async def _tell(self, what: str, kind: str, name: str) -> None:
        try:
            # Send one change at a time, because concurrent commands may arrive in a different order.
            async with self._in_order:
                if what in _SWITCHES:
                    # Store the state before sending it, because a replica may start between these two steps.
                    await self._keep("HSET", f"{kind} {name}", what)
                await self._replica.mailbox.tell_all(_KIND, f"{what} {kind} {name}".encode())
                if what in _SWITCHES:
                    # Apply the stored state, because another replica could have stored a newer state.
                    await self._switch(what, kind, name)
        except StoreUnavailableError as error:
            log.warning("change not sent to other replicas", what=what, name=name, reason=error.message)

    async def _take(self, body: bytes) -> bytes:
        # The name comes last because it may contain spaces.
        what, kind, name = body.decode().split(" ", 2)
        if what in _SWITCHES:
            await self._switch(what, kind, name)
        else:
            self._apply(what, kind, name)
        return b""

    async def _switch(self, what: str, kind: str, name: str) -> None:
        """Apply the stored state of a primitive, or `what` if no state is stored."""
        kept = await self._replica.store.command("HGET", self._key, f"{kind} {name}")
        self._apply(what if kept is None else kept.decode(), kind, name)

    def _apply(self, what: str, kind: str, name: str) -> None:
        with suppress(ExecutionError):  # the primitive does not exist here yet
            self._changes[what](_LISTS[kind], name)

    @property
    def _changes(self) -> dict[str, Callable[[ListKind, str], None]]:
        return {
            "changed": lambda kind, _: self._notifier.list_changed(kind),
            "updated": lambda _, uri: self._updated(uri),
            "enabled": self._store.enable,
            "disabled": self._store.disable,
        }

    def _updated(self, uri: str) -> None:
        for name in self._store.current.uris_of(uri):
            self._notifier.resource_updated(name)

    async def _take_disabled(self) -> None:
        found = await self._replica.store.command("HGETALL", self._key)
        for field, what in found.items():
            if what == b"disabled":
                self._apply("disabled", *field.decode().split(" ", 1))

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            for kind, name in self._store.disabled:
                with suppress(StoreUnavailableError):
                    # HSETNX keeps the stored value if another replica has enabled the primitive.
                    if await self._keep("HSETNX", f"{kind} {name}", "disabled"):
                        # The store had lost the value, so other replicas could have missed the change.
                        await self._replica.mailbox.tell_all(_KIND, f"disabled {kind} {name}".encode())

    async def _keep(self, command: str, field: str, what: str) -> Json:
        answer = await self._replica.store.command(command, self._key, field, what)
        await self._replica.store.command("EXPIRE", self._key, _KEPT_SECONDS)
        return answer
