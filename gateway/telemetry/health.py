"""The readiness of the gateway."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gateway.json_types import Json, JsonObject

_RECENT_SECONDS: Final = 60.0


class Health:
    """Tracks whether the gateway is starting, ready or stopping, and reports its problems."""

    def __init__(
        self,
        *,
        problems: Callable[[], Sequence[str]] = tuple,
        upstreams: Callable[[], Mapping[str, JsonObject]] = dict,
        missing: Callable[[], Sequence[str]] = tuple,
        warnings: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Create the object in the state `starting`.

        Args:
            problems: Returns the masked problems that prevent the newest files from being served.
            upstreams: Returns the masked status of each upstream, by name.
            missing: Returns the required upstreams that are not connected. The gateway is not ready if one is missing.
            warnings: Returns further warnings, which do not affect readiness.
        """
        self.problems: Final = problems
        self._upstreams: Final = upstreams
        self._missing: Final = missing
        self._warnings: Final = warnings
        self._started: Final = time.monotonic()
        self.state = "starting"
        self._asked_at: float | None = None

    def become_ready(self) -> None:
        self.state = "ready"

    def begin_stopping(self) -> None:
        self.state = "stopping"

    @property
    def uptime_seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def is_ready(self) -> bool:
        return self.state == "ready" and not self._missing()

    @property
    def is_watched(self) -> bool:
        """Whether readiness was requested in the last minute, for example by a load balancer."""
        return self._asked_at is not None and time.monotonic() - self._asked_at < _RECENT_SECONDS

    def readiness(self) -> JsonObject:
        # Load balancers that poll readiness are notified before connections are refused (`app/listeners.py`).
        self._asked_at = time.monotonic()
        missing = [f"the upstream {name} is required but unreachable" for name in self._missing()]
        problems = [*self.problems(), *missing]
        readiness: dict[str, Json] = {"ready": self.is_ready, "state": self.state, "problems": problems}
        if warnings := [*self._unreachable(), *self._warnings()]:
            readiness["warnings"] = warnings
        return readiness

    def _unreachable(self) -> list[str]:
        return [
            f"the upstream {name} is {each['state']}"
            for name, each in self._upstreams().items()
            if each["state"] in {"backing_off", "degraded"}
            # Do not warn about a first connection that has not failed if earlier definitions are served.
            or (each["state"] == "connecting" and ("reason" in each or "offers" not in each))
        ]
