"""Health of the daemon: its readiness and its status, gathered from the rooms that know."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gateway import __version__
from gateway.json_types import Json, JsonObject

_RECENT_SECONDS: Final = 60.0


class Health:
    """The state of the daemon, and the sources of its status. Ready from `become_ready` to `begin_stopping`."""

    def __init__(
        self,
        sources: Mapping[str, Callable[[], Json]],
        *,
        missing: Callable[[], Sequence[str]] = tuple,
        warnings: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`missing` names what is needed to be ready and is not there: required upstreams; `warnings` what is not."""
        self._sources: Final = sources
        self._missing: Final = missing
        self._warnings: Final = warnings
        self._started: Final = time.monotonic()
        self._state = "starting"
        self._asked_at: float | None = None

    def become_ready(self) -> None:
        self._state = "ready"

    def begin_stopping(self) -> None:
        self._state = "stopping"

    @property
    def state(self) -> str:
        """`starting`, `ready` or `stopping`."""
        return self._state

    @property
    def is_ready(self) -> bool:
        return self._state == "ready" and not self._missing()

    @property
    def is_stopping(self) -> bool:
        return self._state == "stopping"

    @property
    def is_watched(self) -> bool:
        """Whether readiness was asked for lately, as load balancers do."""
        return self._asked_at is not None and time.monotonic() - self._asked_at < _RECENT_SECONDS

    def readiness(self) -> JsonObject:
        # A load balancer that asks is given notice before connections are refused (`app/listeners.py`).
        self._asked_at = time.monotonic()
        missing = [f"the upstream {name} is required and cannot be reached" for name in self._missing()]
        problems = [*self._sources["problems"](), *missing]
        readiness: dict[str, Json] = {"ready": self.is_ready, "state": self._state, "problems": problems}
        if warnings := [*self._unreachable(), *self._warnings()]:
            readiness["warnings"] = warnings
        return readiness

    def _unreachable(self) -> list[str]:
        """The upstreams that cannot be reached; that is no reason not to be ready."""
        upstreams = self._sources["upstreams"]() if "upstreams" in self._sources else {}
        return [
            f"the upstream {name} is {each['state']}"
            for name, each in upstreams.items()
            if each["state"] in {"backing_off", "degraded"}
            # It is tried again, or nothing of it is offered yet.
            or (each["state"] == "connecting" and ("reason" in each or "offers" not in each))
        ]

    def status(self) -> JsonObject:
        return {
            "version": __version__,
            "state": self._state,
            "uptime_seconds": round(time.monotonic() - self._started, 1),
            **{name: source() for name, source in self._sources.items()},
        }
