"""The interface of permits for concurrent calls."""

import asyncio
from typing import Protocol


class Permit(Protocol):
    """The permit of a running call."""

    def hold_until_done(self, task: asyncio.Task[None]) -> None:
        """Keep the permit until `task` is done, even after the response."""
