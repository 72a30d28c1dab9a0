"""The records that the console shows: rates of calls, and reloads."""

from collections.abc import Sequence
from typing import Protocol

from gateway.json_types import JsonObject


class Recorded(Protocol):
    """Records of the last hour."""

    def rates(self) -> JsonObject:
        """Return `rates` of `/-/api/overview`."""

    def reloads(self) -> Sequence[JsonObject]:
        """Return `reloads` of `/-/api/config`, the newest first."""


class NothingRecorded:
    """Stands in for records until there are some."""

    def rates(self) -> JsonObject:
        return {"seconds": 10, "end": None, "calls": [], "errors": [], "p50Ms": [], "p95Ms": []}

    def reloads(self) -> Sequence[JsonObject]:
        return ()
