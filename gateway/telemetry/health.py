"""What the daemon says about itself: alive, ready, and what it is doing. Gathers; measures nothing."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from gateway import __version__
from gateway.json_types import Json, JsonObject

_LATELY_SECONDS: Final = 60.0


class Health:
    """Ready between `become_ready` and `begin_stopping`; the rest is asked of its sources when somebody looks."""

    def __init__(self, sources: Mapping[str, Callable[[], Json]]) -> None:
        self._sources: Final = sources
        self._started: Final = time.monotonic()
        self._state = "starting"
        self._asked_at: float | None = None

    def become_ready(self) -> None:
        self._state = "ready"

    def begin_stopping(self) -> None:
        self._state = "stopping"

    @property
    def is_ready(self) -> bool:
        return self._state == "ready"

    @property
    def is_stopping(self) -> bool:
        return self._state == "stopping"

    @property
    def is_watched(self) -> bool:
        """Whether somebody has asked lately if it is ready, as load balancers do."""
        return self._asked_at is not None and time.monotonic() - self._asked_at < _LATELY_SECONDS

    def readiness(self) -> JsonObject:
        self._asked_at = time.monotonic()
        return {"ready": self.is_ready, "state": self._state, "problems": self._sources["problems"]()}

    def status(self) -> JsonObject:
        return {
            "version": __version__,
            "state": self._state,
            "uptime_seconds": round(time.monotonic() - self._started, 1),
            **{name: source() for name, source in self._sources.items()},
        }
