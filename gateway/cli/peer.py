"""What `list`, `call`, `read` and `prompt` talk to: this process's own gateway, or a server behind a URL."""

from collections.abc import Callable
from typing import Protocol

from gateway.json_types import Json, JsonObject

Notified = Callable[[JsonObject], None]
"""Hears each notification that belongs to a request."""


class Peer(Protocol):
    async def request(self, method: str, params: JsonObject, *, notified: Notified | None = None) -> JsonObject:
        """Send a request of 2026-07-28 and return its result.

        Raises:
            RpcError: the answer is an error.
        """


async def every_page(peer: Peer, method: str, key: str) -> list[Json]:
    """All items of a list."""
    items: list[Json] = []
    params: JsonObject = {}
    while True:
        page = await peer.request(method, params)
        items += page[key]
        if page.get("nextCursor") is None:
            return items
        params = {"cursor": page["nextCursor"]}
