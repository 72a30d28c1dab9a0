"""How many event streams are open that may last for ever: GET streams of sessions, and modern subscriptions."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gateway.transports.guard import RETRY, Refusal


class Streams:
    """Counts them against `limits.streams`."""

    def __init__(self, *, limit: int) -> None:
        self.limit: Final = limit
        self._open = 0

    def __len__(self) -> int:
        return self._open

    @property
    def is_full(self) -> bool:
        return self._open >= self.limit

    @property
    def refusal(self) -> Refusal:
        return Refusal(status=503, message=f"All {self.limit} streams are taken (limits.streams)", headers=RETRY)

    @contextmanager
    def one(self) -> Iterator[None]:
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
