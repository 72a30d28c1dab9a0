"""How often outputs were too large, by what became of them."""

from collections.abc import Mapping
from threading import Lock
from typing import Final, Literal

Overflow = Literal["truncate", "resource", "error"]


class Overflows:
    """Counts. Outputs are shaped in threads, too."""

    def __init__(self) -> None:
        self._counts: Final[dict[Overflow, int]] = {"truncate": 0, "resource": 0, "error": 0}
        self._lock: Final = Lock()

    def note(self, overflow: Overflow) -> None:
        with self._lock:
            self._counts[overflow] += 1

    @property
    def counts(self) -> Mapping[str, int]:
        return dict[str, int](self._counts.items())
