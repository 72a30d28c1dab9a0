"""Tracks the requests in progress by identity, and ends those whose credential is no longer valid.

Handlers are cancelled as if their client had disconnected. Subscriptions are closed with a result instead, which their
client must receive (2026-07-28 basic/patterns/subscriptions). Sessions are revalidated by `Sessions`.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from gateway.access.identity import Identity
from gateway.transports.http.request import Task

Renewed = Callable[[Identity], Identity | None]
"""Return the identity that the same credential has now, or None if it is no longer valid."""
Admits = Callable[[str | None, Identity], bool]
"""Whether a view exists and an identity can use it. None is the whole catalog."""


class ActiveRequests:
    """The requests in progress, each with its task and its identity."""

    def __init__(self, *, end_subscription: Callable[[Task], bool] = lambda _: False) -> None:
        """`end_subscription` ends the subscription that a task serves. It returns False if there is none."""
        self._end_subscription: Final = end_subscription
        self._served: Final[dict[Task, tuple[Identity, str | None]]] = {}
        """The identity of each request, and the view that it was sent to."""
        self._streams: Final[dict[Task, asyncio.TimerHandle | None]] = {}
        """The requests with a stream response, and the timer that fires when their credential expires."""

    def __len__(self) -> int:
        return len(self._served)

    def begin(self, task: Task, identity: Identity, *, view: str | None = None) -> None:
        """Register the request that `task` serves, until `end`."""
        self._served[task] = identity, view

    def end(self, task: Task) -> None:
        del self._served[task]
        if (expiry := self._streams.pop(task, None)) is not None:
            expiry.cancel()

    def begin_stream(self, task: Task, identity: Identity) -> None:
        """Register a stream response, until `end` or until the credential expires."""
        expiry = None
        if identity.expires_at is not None:
            # Credentials expire by wall-clock time (RFC 7519 §4.1.4), but timers use the event loop's clock.
            expiry = asyncio.get_running_loop().call_later(
                max(0.0, identity.expires_at - time.time()), self._stop, task
            )
        self._streams[task] = expiry

    def revalidate(self, renewed: Renewed, *, admits: Admits) -> None:
        """End requests without a valid credential, and streams whose scopes or view have changed."""
        for task, (identity, view) in list(self._served.items()):
            # Calls keep the scopes that they started with. Streams would go on reporting hidden primitives.
            now = renewed(identity)
            if now is None or (task in self._streams and (now != identity or not admits(view, now))):
                self._stop(task)

    def _stop(self, task: Task) -> None:
        if not self._end_subscription(task):
            task.cancel()
