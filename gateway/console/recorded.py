"""The records that the console shows: rates of calls, and reloads."""

from collections.abc import Sequence
from typing import Protocol

from gateway.json_types import JsonObject


class Recorded(Protocol):
    """Records of the last hour."""

    async def rates(self) -> JsonObject:
        """Return `rates` of `/-/api/overview`."""

    def reloads(self) -> Sequence[JsonObject]:
        """Return `reloads` of `/-/api/config`, the newest first."""
