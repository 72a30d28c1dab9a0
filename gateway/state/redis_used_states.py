"""Remembers for all replicas which request states were used that are good once: a key each, until it expires."""

import secrets
from collections.abc import Callable
from typing import Final

from gateway.state.shared_store import SharedStore


class RedisUsedStates:
    """The nonces of used states, which all replicas share."""

    def __init__(self, store: SharedStore, *, clock: Callable[[], float]) -> None:
        self._store: Final = store
        self._clock: Final = clock

    async def take(self, nonce: str, *, expires: float) -> bool:
        """Use a state; False if it was used before.

        Raises:
            StoreAwayError: whether it was cannot be known now.
        """
        key = f"{self._store.prefix}used:{nonce}"
        mark = secrets.token_hex(8)  # so that a command that is sent again finds that it was its own
        left = max(1, round((expires - self._clock()) * 1000))
        found = await self._store.command("SET", key, mark, "NX", "GET", "PX", left)
        return found is None or found == mark.encode()
