"""The in-memory transport: a client in the same process, for the command line and tests."""

from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Final

from gateway import __version__, exact_json
from gateway.access.identity import ANONYMOUS, Identity
from gateway.errors import RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding, Caller, ChannelExchange
from gateway.wire import meta
from gateway.wire.jsonrpc import Request
from gateway.wire.revisions import LATEST_MODERN

Listener = Callable[[JsonObject], Awaitable[None]]
"""Function that receives the notifications sent before a response."""


OURSELVES: Final = MappingProxyType[str, Json]({"name": "mcp-gateway", "version": __version__})


class MemoryClient:
    """Sends requests of the newest revision directly to a dispatcher."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        client_info: JsonObject = OURSELVES,
        capabilities: JsonObject = MappingProxyType({}),
        view: str | None = None,
        identity: Identity = ANONYMOUS,
    ) -> None:
        self._caller: Final = Caller(binding=Binding.MEMORY, view=view, identity=identity)
        self._dispatcher: Final = dispatcher
        self._envelope: Final[Mapping[str, Json]] = {
            meta.META_PROTOCOL_VERSION: LATEST_MODERN,
            meta.META_CLIENT_CAPABILITIES: dict(capabilities),
            meta.META_CLIENT_INFO: dict(client_info),
        }
        self._ids: Final = count(1)

    async def request(
        self, method: str, params: JsonObject | None = None, *, on_notification: Listener | None = None
    ) -> dict[str, Json]:
        """Send a request and return its result.

        `on_notification` receives progress notifications, and log messages if `params._meta` contains a log level.

        Raises:
            RpcError: The response is an error.
        """
        request_id = next(self._ids)
        given: dict[str, Json] = dict(params or {})
        fields = {**self._envelope, **given.get(meta.META, {})}
        if on_notification is not None:
            fields.setdefault(meta.META_PROGRESS_TOKEN, request_id)
        message = Request(request_id, method, {**given, meta.META: fields})

        async def deliver(notification: JsonObject) -> bool:
            if on_notification is not None:
                await on_notification(notification)
            return True

        reply = await self._dispatcher.answer(message, ChannelExchange(caller=self._caller, deliver=deliver))
        answer = exact_json.loads(reply.body or b"{}")
        if "error" in answer:
            error = answer["error"]
            raise RpcError(error["code"], error["message"], error.get("data"))
        result: dict[str, Json] = answer["result"]
        return result
