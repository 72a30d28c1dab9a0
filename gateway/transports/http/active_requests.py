"""Tracks the requests that are served, by identity, and ends those whose credential is no longer good.

Why requests and not connections: a handler that is cancelled is, for all that it holds, one whose client went away.
What outlives its request belongs to a session, which is looked at where sessions are kept. A subscription is not
cancelled: its client is owed a result (2026-07-28 basic/patterns/subscriptions).
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from gateway.access.identity import Identity
from gateway.transports.http.request import Task

Renewed = Callable[[Identity], Identity | None]
"""Whom the same credential would be let in as now; None if it would not."""
Admits = Callable[[str | None, Identity], bool]
"""Whether somebody may use a view (None: the whole), and it is there."""


class ActiveRequests:
    """The requests that are served now, each with its task and its identity."""

    def __init__(self, *, end_subscription: Callable[[Task], bool] = lambda _: False) -> None:
        """Track nothing yet; `end_subscription` ends the one that a task serves with its result, if it serves one."""
        self._end_subscription: Final = end_subscription
        self._served: Final[dict[Task, tuple[Identity, str | None]]] = {}
        """Each with the view that it was sent to."""
        self._streams: Final[dict[Task, asyncio.TimerHandle | None]] = {}
        """Those that are answered with a stream, and what ends it with the credential."""

    def __len__(self) -> int:
        return len(self._served)

    def begin(self, task: Task, identity: Identity, *, view: str | None = None) -> None:
        """Note that a request is served in this task from now on, until `end`."""
        self._served[task] = identity, view

    def end(self, task: Task) -> None:
        del self._served[task]
        if (expiry := self._streams.pop(task, None)) is not None:
            expiry.cancel()

    def begin_stream(self, task: Task, identity: Identity) -> None:
        """Note that a request is answered with a stream, until `end` or the end of the credential."""
        expiry = None
        if identity.expires_at is not None:
            # Credentials expire by the wall clock (RFC 7519 §4.1.4), and timers run by the loop's own.
            expiry = asyncio.get_running_loop().call_later(
                max(0.0, identity.expires_at - time.time()), self._stop, task
            )
        self._streams[task] = expiry

    def revalidate(self, renewed: Renewed, *, admits: Admits) -> None:
        """End requests whose credential is no longer accepted, and streams of callers whose scopes changed.

        Streams of a view that is gone end too; what is called there already is answered.
        """
        for task, (identity, view) in list(self._served.items()):
            # A call keeps the scopes with which it began; a stream would go on telling of what is shown no more.
            now = renewed(identity)
            if now is None or (task in self._streams and (now != identity or not admits(view, now))):
                self._stop(task)

    def _stop(self, task: Task) -> None:
        if not self._end_subscription(task):
            task.cancel()
