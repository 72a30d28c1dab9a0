"""The client interface of `list`, `call`, `read` and `prompt`."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from gateway.json_types import Json, JsonObject

Listener = Callable[[JsonObject], Awaitable[None]]
"""Receives the notifications before a response."""


class RemoteError(Exception):
    """The server did not respond, or the response is not valid for this revision."""


class GatewayClient(Protocol):
    async def request(
        self, method: str, params: JsonObject | None = None, *, on_notification: Listener | None = None
    ) -> JsonObject:
        """Send a request of 2026-07-28 and return the result. With `on_notification`, also request progress.

        Raises:
            RpcError: the response is an error.
        """


async def every_page(client: GatewayClient, method: str, key: str) -> list[Json]:
    """Return the items of all pages of a list."""
    items: list[Json] = []
    params: JsonObject = {}
    while True:
        page = await client.request(method, params)
        items += page[key]
        if page.get("nextCursor") is None:
            return items
        params = {"cursor": page["nextCursor"]}
