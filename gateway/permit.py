"""The interface of permits for concurrent calls."""

import asyncio
from typing import Protocol


class Permit(Protocol):
    """The permit of a running call."""

    def hold_until_done(self, task: asyncio.Task[None]) -> None:
        """Keep the permit until `task` is done, even after the response."""

    def suspend(self) -> None:
        """Let other calls run while this one waits for its user."""

    def force_resume(self) -> None:
        """Continue at once, even if more calls run than allowed."""
