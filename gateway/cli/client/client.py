"""The client that `list`, `call`, `read` and `prompt` use: a gateway in this process, or a server behind a URL."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from gateway.json_types import Json, JsonObject

Listener = Callable[[JsonObject], Awaitable[None]]
"""Takes the notifications that precede a response."""


class RemoteError(Exception):
    """No answer came from the URL, or none that a server of this revision gives."""


class GatewayClient(Protocol):
    async def request(
        self, method: str, params: JsonObject | None = None, *, on_notification: Listener | None = None
    ) -> JsonObject:
        """Send a request of 2026-07-28 and return its result. With a listener, progress is asked for.

        Raises:
            RpcError: the answer is an error.
        """


async def every_page(client: GatewayClient, method: str, key: str) -> list[Json]:
    """The items of all pages of a list."""
    items: list[Json] = []
    params: JsonObject = {}
    while True:
        page = await client.request(method, params)
        items += page[key]
        if page.get("nextCursor") is None:
            return items
        params = {"cursor": page["nextCursor"]}
