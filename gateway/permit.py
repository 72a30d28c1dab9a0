"""Permits of concurrent calls."""

import asyncio
from typing import Protocol


class Permit(Protocol):
    """Permission of a call to run, within a limit of concurrent calls."""

    def hold_until_done(self, task: asyncio.Task[None]) -> None:
        """Keep the permit until the task is done, even after the response."""

    def suspend(self) -> None:
        """Let other calls run while this one waits for its user."""

    def force_resume(self) -> None:
        """Continue at once, even if this exceeds the limit."""
