"""Implements subscriptions/listen (2026-07-28 basic/patterns/subscriptions), resources/subscribe and unsubscribe."""

from collections.abc import Mapping
from typing import Final

from gateway.errors import ErrorCode, ResourceNotFoundError, RpcError
from gateway.json_types import Json, JsonObject
from gateway.plugin import ListKind
from gateway.protocol.call.call import Call
from gateway.protocol.call.run import check_access
from gateway.protocol.exchange import Binding
from gateway.protocol.methods.tasks import own_task
from gateway.protocol.notifier import Subscription
from gateway.protocol.tasks.wire import declares_tasks, detailed, missing_extension
from gateway.wire import jsonrpc, meta

MAX_URIS: Final = 1000

MAX_URI_LENGTH: Final = 8192

MAX_SESSION_LENGTH: Final = 256 * 1024

MAX_TASK_ID_LENGTH: Final = 256

_KINDS: Final[Mapping[str, ListKind]] = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}


async def listen(call: Call) -> JsonObject:
    """Send notifications until the client disconnects, or the daemon or a reload ends the subscription.

    The acknowledgment contains only resources and tasks that the caller can read. After the acknowledgment, the state
    of each task is sent, because the task may already have ended.
    """
    wanted = call.params.get("notifications")
    if not isinstance(wanted, dict):
        raise RpcError(ErrorCode.INVALID_PARAMS, "`notifications` must be an object")
    wanted = jsonrpc.present(wanted)
    task_ids = await _tasks(wanted, call)
    honoured = {name: True for name in _KINDS if _flag(wanted, name)}
    uris = [uri for uri in _uris(wanted) if _may_be_read(uri, call)]
    kinds = frozenset(_KINDS[name] for name in honoured)
    filter_: dict[str, Json] = {
        **honoured,
        **({"resourceSubscriptions": uris} if uris else {}),
        **({"taskIds": task_ids} if task_ids else {}),
    }
    caller = call.caller
    with call.server.notifier.listen(
        kinds, frozenset(uris), scopes=caller.identity.scopes, view=caller.view, task_ids=frozenset(task_ids)
    ) as subscription:
        # Read the tasks inside the context, so that no change is missed.
        await _tell_tasks(task_ids, subscription, call)
        if uris:
            await call.server.notifier.upstreams_watch()
        if caller.view is not None and caller.view not in call.server.store.current.views:
            subscription.end()  # a reload has removed the view
        await _send(call, "notifications/subscriptions/acknowledged", {"notifications": filter_})
        await _relay(subscription, call)
    if call.caller.binding is not Binding.STREAMABLE_HTTP:
        # Servers announce that a subscription has ended (2026-07-28 basic/patterns/cancellation). Over HTTP, closing
        # the stream is enough.
        await _send(call, "notifications/cancelled", {"requestId": call.request_id})
    return {meta.META: {meta.META_SUBSCRIPTION_ID: call.request_id}}


async def subscribe(call: Call) -> JsonObject:
    uri = jsonrpc.string_param(call.params, "uri")
    if len(uri) > MAX_URI_LENGTH:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"A URI must have at most {MAX_URI_LENGTH} characters")
    found = call.catalog.resource(uri)
    if found is None:
        raise ResourceNotFoundError(uri)
    check_access(found[0], call)
    if call.session is not None:
        watched = call.session.subscriptions | {uri}
        if len(watched) > MAX_URIS:
            raise RpcError(ErrorCode.INVALID_PARAMS, f"A session can watch at most {MAX_URIS} resources")
        if sum(map(len, watched)) > MAX_SESSION_LENGTH:
            raise RpcError(
                ErrorCode.INVALID_PARAMS,
                f"The watched URIs of a session must have at most {MAX_SESSION_LENGTH} characters",
            )
        call.session.watch(watched)
        call.server.notifier.watch_changed()
        # Wait here, because the client must not miss an update after the response.
        await call.server.notifier.upstreams_watch()
    return {}


async def unsubscribe(call: Call) -> JsonObject:
    uri = jsonrpc.string_param(call.params, "uri")
    if call.session is not None:
        call.session.watch(call.session.subscriptions - {uri})
        call.server.notifier.watch_changed()
    return {}


def _may_be_read(uri: str, call: Call) -> bool:
    found = call.catalog.resource(uri)
    return found is not None and call.caller.identity.holds(found[0].access.scopes)


async def _tasks(wanted: JsonObject, call: Call) -> list[str]:
    if "taskIds" not in wanted:
        return []
    if not declares_tasks(call.terms.capabilities, call.revision):
        raise missing_extension()
    ids = wanted["taskIds"]
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids) or len(ids) > MAX_URIS:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"`notifications.taskIds` must be a list of at most {MAX_URIS} ids")
    named = [each for each in dict.fromkeys(ids) if len(each) <= MAX_TASK_ID_LENGTH]
    own = [each for each in named if await own_task(each, call) is not None]
    for task_id in own:
        await call.server.tasks.store.watch(task_id)
    return own


async def _tell_tasks(task_ids: list[str], subscription: Subscription, call: Call) -> None:
    for task_id in task_ids:
        if (task := await own_task(task_id, call)) is not None:
            subscription.tell_task(task, detailed(task, now=call.server.tasks.clock()))


async def _relay(subscription: Subscription, call: Call) -> None:
    with subscription.outbox.reader() as reader:
        while (message := await reader.get()) is not None:
            # `_send` copies the parameters, because all outboxes share the queued message.
            await _send(call, message["method"], message.get("params", {}))


async def _send(call: Call, method: str, members: JsonObject) -> None:
    fields = {meta.META_SUBSCRIPTION_ID: call.request_id}
    await call.exchange.send({"jsonrpc": jsonrpc.VERSION, "method": method, "params": {**members, meta.META: fields}})


def _flag(wanted: JsonObject, name: str) -> bool:
    value = wanted.get(name, False)
    if not isinstance(value, bool):
        raise RpcError(ErrorCode.INVALID_PARAMS, f"`notifications.{name}` must be a boolean")
    return value


def _uris(wanted: JsonObject) -> list[str]:
    uris = wanted.get("resourceSubscriptions", [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris) or len(uris) > MAX_URIS:
        raise RpcError(
            ErrorCode.INVALID_PARAMS,
            f"`notifications.resourceSubscriptions` must be a list of at most {MAX_URIS} URIs",
        )
    if any(len(uri) > MAX_URI_LENGTH for uri in uris):
        raise RpcError(ErrorCode.INVALID_PARAMS, f"A URI must have at most {MAX_URI_LENGTH} characters")
    return list(dict.fromkeys(uris))
