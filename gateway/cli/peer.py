"""What `list`, `call`, `read` and `prompt` talk to: this process's own gateway, or a server behind a URL."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from gateway.json_types import Json, JsonObject

Listener = Callable[[JsonObject], Awaitable[None]]
"""Takes the notifications that come before an answer."""


class Peer(Protocol):
    async def request(
        self, method: str, params: JsonObject | None = None, *, on_notification: Listener | None = None
    ) -> JsonObject:
        """Send a request of 2026-07-28 and return its result. With a listener, progress is asked for.

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
