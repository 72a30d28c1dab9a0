"""The requests that are being served, by who sent them: what a reload or the clock takes from a caller ends.

Why requests and not connections: a handler that is cancelled is, for all that it holds, one whose client went away.
What outlives its request belongs to a session, which is looked at where sessions are kept.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gateway.access.identity import Identity
from gateway.transports.visit import Task

Renewed = Callable[[Identity], Identity | None]
"""Whom the same credential would be let in as now; None if it would not."""


class Admissions:
    """All of them."""

    def __init__(self) -> None:
        self._served: Final[dict[Task, Identity]] = {}
        self._streams: Final[set[Task]] = set()

    def __len__(self) -> int:
        return len(self._served)

    def begin(self, task: Task, identity: Identity) -> None:
        """A request is served in this task from now on, until `end`."""
        self._served[task] = identity

    def end(self, task: Task) -> None:
        del self._served[task]

    @contextmanager
    def stream(self, task: Task, identity: Identity) -> Iterator[None]:
        """While such a request is answered with a stream that may last for ever: it ends with the credential."""
        expiry = None
        if identity.expires_at is not None:
            expiry = asyncio.get_running_loop().call_later(max(0.0, identity.expires_at - time.time()), task.cancel)
        self._streams.add(task)
        try:
            yield
        finally:
            self._streams.discard(task)
            if expiry is not None:
                expiry.cancel()

    def review(self, renewed: Renewed) -> None:
        """End what is served to those who would no longer be let in, and streams to whom less or more may be said."""
        for task, identity in list(self._served.items()):
            now = renewed(identity)
            if now is None or (now != identity and task in self._streams):
                task.cancel()
