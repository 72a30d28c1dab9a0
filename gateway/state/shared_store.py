"""The interfaces of a store that several replicas share, as stores and rooms use it. Knows no library."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from gateway.json_types import Json

WAIT_SECONDS: Final = 2.0
"""How long anything that needs the store waits for it."""


def replica_key(prefix: str, replica: str) -> str:
    """The key that is there while a replica lives."""
    return f"{prefix}replica:{replica}"


class Script(msgspec.Struct, frozen=True):
    """Lua that reads and writes one key, or keys of one slot, at once; the store knows it by its digest."""

    text: str
    digest: str

    @classmethod
    def of(cls, text: str) -> "Script":
        return cls(text=text, digest=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class SharedStore(Protocol):
    """The store of several replicas, as this one is connected with it."""

    @property
    def prefix(self) -> str:
        """The beginning of all keys."""

    @property
    def problem(self) -> str:
        """Why it cannot be used now; empty if it can."""

    @property
    def is_away(self) -> bool: ...

    @property
    def faults(self) -> Mapping[str, int]:
        """The number of times that it could not be used, by the name of the error."""

    @property
    def operations(self) -> int:
        """The number of commands and scripts that were answered."""

    @property
    def seconds(self) -> float:
        """The time that these took."""

    async def __aenter__(self) -> Self:
        """Connect, and go on without if that takes too long."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def open(self) -> None:
        """Call what waits for the first use, now or once it can be used."""

    def status(self) -> dict[str, Json]: ...

    async def command(self, *words: str | bytes | float) -> Json:
        """Send a command, and return its answer.

        Raises:
            StoreAwayError: it was not answered in time.
        """

    async def run(self, script: Script, keys: Sequence[str], *values: str | bytes | float) -> Json:
        """Run a script; see `command`."""

    async def attempt(self, script: Script, keys: Sequence[str], *values: str | bytes | float) -> Json:
        """Run a script that must not run twice, once: a store that is away is not waited for.

        Raises:
            StoreAwayError: it was not answered. It may have run.
        """

    async def read_stream(self, key: str, *, after: str, seconds: float) -> Sequence[tuple[str, Mapping[str, bytes]]]:
        """Wait for entries of a stream, each with its id; see `command`."""

    async def returned(self) -> None:
        """Wait until it can be used."""

    def on_return(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Have a function called whenever it has come back, and at its first use."""
