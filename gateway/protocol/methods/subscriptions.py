"""subscriptions/listen (2026-07-28 basic/patterns/subscriptions); resources/subscribe and unsubscribe before it."""

from collections.abc import Mapping
from typing import Final

from gateway.errors import ErrorCode, MissingCapabilityError, RpcError
from gateway.json_types import Json, JsonObject
from gateway.plugin import ListKind
from gateway.protocol import jsonrpc, meta
from gateway.protocol.announcements import Subscription
from gateway.protocol.exchange import Binding
from gateway.protocol.methods import params
from gateway.protocol.request import RequestContext, Runtime
from gateway.protocol.running import check_access
from gateway.protocol.unknown import unknown_resource

MOST_URIS: Final = 1000
"""Resources that one session or one subscription may watch."""

LONGEST_URI: Final = 8192
"""Characters of one that is watched: it is kept as long as somebody watches it."""

_TASKS: Final = "io.modelcontextprotocol/tasks"
"""An extension: whoever speaks it may name tasks (`taskIds`), of which there are none here."""

_KINDS: Final[Mapping[str, ListKind]] = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}


async def listen(request: RequestContext, runtime: Runtime) -> JsonObject:
    """Send what was asked for until the client goes away; answer when the daemon ends.

    A resource that nothing serves, or that the caller may not read, is left out of what is acknowledged.
    """
    wanted = request.params.get("notifications")
    if not isinstance(wanted, dict):
        raise RpcError(ErrorCode.INVALID_PARAMS, "`notifications` must be an object")
    if "taskIds" in wanted:
        _check_extension(_TASKS, request)
    honoured = {name: True for name in _KINDS if _flag(wanted, name)}
    uris = [uri for uri in _uris(wanted) if _may_be_read(uri, request)]
    kinds = frozenset(_KINDS[name] for name in honoured)
    filter_: dict[str, Json] = {**honoured, **({"resourceSubscriptions": uris} if uris else {})}
    scopes = request.exchange.caller.identity.scopes
    with runtime.announcements.listen(kinds, frozenset(uris), scopes=scopes) as subscription:
        await _send(request, "notifications/subscriptions/acknowledged", {"notifications": filter_})
        await _relay(subscription, request)
    if request.exchange.caller.binding is not Binding.STREAMABLE_HTTP:
        await _send(request, "notifications/cancelled", {"requestId": request.request_id})
    return {meta.META: {meta.META_SUBSCRIPTION_ID: request.request_id}}


async def subscribe(request: RequestContext, runtime: Runtime) -> JsonObject:
    uri = params.string(request.params, "uri")
    if len(uri) > LONGEST_URI:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"A URI of more than {LONGEST_URI} characters")
    found = request.catalog.resource(uri)
    if found is None:
        raise unknown_resource(uri, request, runtime)
    check_access(found[0], request)
    if request.session is not None:
        if len(request.session.subscriptions) >= MOST_URIS:
            raise RpcError(ErrorCode.INVALID_PARAMS, f"More than {MOST_URIS} subscriptions")
        request.session.subscriptions |= {uri}
    return {}


async def unsubscribe(request: RequestContext, _runtime: Runtime) -> JsonObject:
    uri = params.string(request.params, "uri")
    if request.session is not None:
        request.session.subscriptions -= {uri}
    return {}


def _check_extension(name: str, request: RequestContext) -> None:
    extensions = request.client_capabilities.get("extensions")
    if not isinstance(extensions, dict) or name not in extensions:
        raise MissingCapabilityError({"extensions": {name: {}}})


def _may_be_read(uri: str, request: RequestContext) -> bool:
    found = request.catalog.resource(uri)
    return found is not None and request.exchange.caller.identity.holds(found[0].access.scopes)


async def _relay(subscription: Subscription, request: RequestContext) -> None:
    with subscription.outbox.reader() as reader:
        while (message := await reader.get()) is not None:
            await _send(request, message["method"], message.get("params", {}))


async def _send(request: RequestContext, method: str, members: JsonObject) -> None:
    """Everything on this stream carries the subscription's id, which is the request's, with its JSON type."""
    fields = {meta.META_SUBSCRIPTION_ID: request.request_id}
    await request.exchange.send(
        {"jsonrpc": jsonrpc.VERSION, "method": method, "params": {**members, meta.META: fields}}
    )


def _flag(wanted: JsonObject, name: str) -> bool:
    value = wanted.get(name, False)
    if not isinstance(value, bool):
        raise RpcError(ErrorCode.INVALID_PARAMS, f"`notifications.{name}` must be a boolean")
    return value


def _uris(wanted: JsonObject) -> list[str]:
    uris = wanted.get("resourceSubscriptions", [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris) or len(uris) > MOST_URIS:
        raise RpcError(
            ErrorCode.INVALID_PARAMS,
            f"`notifications.resourceSubscriptions` must be a list of {MOST_URIS} URIs at most",
        )
    if any(len(uri) > LONGEST_URI for uri in uris):
        raise RpcError(ErrorCode.INVALID_PARAMS, f"A URI of more than {LONGEST_URI} characters")
    return list(dict.fromkeys(uris))
