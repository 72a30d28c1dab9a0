"""The other workers of the daemon, as the console asks them."""

from collections.abc import Sequence
from typing import Protocol

from gateway.json_types import Json


class OtherWorkers(Protocol):
    """All others that answer."""

    async def ask_console(self, method: str, path: str) -> Sequence[Json]:
        """Have each answer (see `ThisWorker.answer`), and return what is not None."""


class NoOtherWorkers:
    """Stands for them where the daemon is one process."""

    async def ask_console(self, method: str, path: str) -> Sequence[Json]:
        del method, path
        return ()
