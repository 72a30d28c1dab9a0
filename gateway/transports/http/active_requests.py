"""Tracks requests in progress, and ends requests whose credential has become invalid.

The handlers of such requests are cancelled, as on a disconnect. Subscriptions end with a result instead, as 2026-07-28
basic/patterns/subscriptions requires. `Sessions` revalidates the credentials of sessions.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from gateway.access.identity import Identity
from gateway.transports.http.request import Task

Renewed = Callable[[Identity], Identity | None]
"""Checks an identity again. Returns the current identity, or None if the credential is no longer valid."""
Admits = Callable[[str | None, Identity], bool]
"""Returns whether an identity can use a view (a named part of the catalog). None is the whole catalog."""


class ActiveRequests:
    def __init__(self, *, end_subscription: Callable[[Task], bool]) -> None:
        """`end_subscription` ends the subscription that an asyncio task serves, or returns False if there is none."""
        self._end_subscription: Final = end_subscription
        self._served: Final[dict[Task, tuple[Identity, str | None]]] = {}
        self._streams: Final[dict[Task, asyncio.TimerHandle | None]] = {}
        """The requests with a stream response, each with a timer that fires when the credential expires."""

    def __len__(self) -> int:
        return len(self._served)

    def begin(self, task: Task, identity: Identity, *, view: str | None = None) -> None:
        self._served[task] = identity, view

    def end(self, task: Task) -> None:
        del self._served[task]
        if (expiry := self._streams.pop(task, None)) is not None:
            expiry.cancel()

    def begin_stream(self, task: Task, identity: Identity) -> None:
        expiry = None
        if identity.expires_at is not None:
            # Credentials expire by wall-clock time (RFC 7519 §4.1.4), but timers use the event loop's clock.
            expiry = asyncio.get_running_loop().call_later(
                max(0.0, identity.expires_at - time.time()), self._stop, task
            )
        self._streams[task] = expiry

    def revalidate(self, renewed: Renewed, *, admits: Admits) -> None:
        """End requests with an invalid credential, and event streams of callers whose access has changed."""
        for task, (identity, view) in list(self._served.items()):
            # Running calls keep their original scopes, but streams would still report primitives that are now hidden.
            now = renewed(identity)
            if now is None or (task in self._streams and (now != identity or not admits(view, now))):
                self._stop(task)

    def _stop(self, task: Task) -> None:
        if not self._end_subscription(task):
            task.cancel()
