"""Notifications of changed lists: on the session's stream, or through `subscriptions/listen`."""

from typing import Final

import pytest

from gateway.json_types import Json
from tests.behaviour.cells import HTTP, LATEST, LATEST_LEGACY, cells
from tests.behaviour.client import Call, Client
from tests.behaviour.daemons import one_process
from tests.behaviour.wires import HttpWire
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")

TASKS: Final = "io.modelcontextprotocol/tasks"
CHANGED: Final = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
UPDATED: Final = "notifications/resources/updated"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"


async def open_stream(client: Client) -> None:
    if isinstance(client.wire, HttpWire):
        await client.wire.listen()


async def listening(client: Client, request_id: Json = None, **wanted: Json) -> Call:
    """Open a subscription, and check that it is acknowledged exactly as requested."""
    call = await client.start("subscriptions/listen", {"notifications": wanted}, request_id=request_id)
    acknowledged = await call.notification(ACKNOWLEDGED)
    assert acknowledged["notifications"] == wanted
    assert _is(acknowledged["_meta"][SUBSCRIPTION], call.id)
    return call


@cells(until=LATEST_LEGACY)
@pytest.mark.parametrize("kind", CHANGED)
@requirement("list-changed/session")
async def test_session_is_notified_of_a_changed_list(client: Client, kind: str) -> None:
    await open_stream(client)
    await client.call("change", kind=kind)
    assert await client.notification(CHANGED[kind]) == {}


@cells(until=LATEST_LEGACY)
@requirement("list-changed/session")
async def test_removed_and_restored_tool_is_announced_each_time(client: Client) -> None:
    await open_stream(client)
    client.forget()
    for on in (False, True):
        await client.call("switch", kind="tools", name="sometimes", on=on)
        await client.notification(CHANGED["tools"])
    assert client.received(CHANGED["prompts"]) == []


@cells(until=LATEST_LEGACY, binding=HTTP)
@requirement("list-changed/waits")
@one_process("notifications of other tests can arrive while the stream opens, and are repeated then")
async def test_changes_without_a_stream_are_announced_once_when_one_opens(client: Client) -> None:
    for _ in range(3):
        await client.call("change", kind="tools")
    await client.call("change", kind="prompts")
    await open_stream(client)
    await client.notification(CHANGED["prompts"])
    await client.call("change", kind="resources")
    await client.notification(CHANGED["resources"])
    assert len(client.received(CHANGED["tools"])) == 1


@cells(until=LATEST_LEGACY)
@requirement("resources/updated")
async def test_session_is_notified_of_subscribed_resources(client: Client) -> None:
    await open_stream(client)
    client.forget()
    await client.ask("resources/subscribe", {"uri": "test://note"})
    await client.call("touch", uri="test://third")
    await client.call("touch", uri="test://note")
    assert await client.notification(UPDATED) == {"uri": "test://note"}
    await client.ask("resources/unsubscribe", {"uri": "test://note"})
    await client.call("touch", uri="test://note")
    await client.call("change", kind="tools")
    await client.notification(CHANGED["tools"])
    assert client.received(UPDATED) == []


@cells(until=LATEST_LEGACY)
@requirement("resources/updated")
async def test_subscription_to_an_alias_is_notified_under_the_alias(client: Client) -> None:
    await open_stream(client)
    client.forget()
    await client.ask("resources/subscribe", {"uri": "test://four"})
    await client.call("touch", uri="test://fourth")
    assert await client.notification(UPDATED) == {"uri": "test://four"}
    await client.ask("resources/unsubscribe", {"uri": "test://four"})


@cells(since=LATEST)
@pytest.mark.parametrize("kind", CHANGED)
@pytest.mark.parametrize("request_id", ["words", 4711], ids=repr)
@requirement("subscriptions/acknowledged", "subscriptions/id", "subscriptions/filter")
async def test_subscriber_gets_only_requested_notifications(client: Client, kind: str, request_id: Json) -> None:
    call = await listening(client, request_id, **{f"{kind}ListChanged": True})
    for other in CHANGED:
        await client.call("change", kind=other)
    told = await call.notification(CHANGED[kind])
    assert _is(told["_meta"][SUBSCRIPTION], request_id)
    await client.call("change", kind=kind)
    await call.notification(CHANGED[kind])
    assert call.notifications == []
    await client.cancel(call)


@cells(since=LATEST)
@requirement("subscriptions/resources")
async def test_subscriber_names_resources(client: Client) -> None:
    wanted = {"resourceSubscriptions": ["test://note", "test://nothing", "test://guest/ada"]}
    call = await client.start("subscriptions/listen", {"notifications": wanted})
    acknowledged = await call.notification(ACKNOWLEDGED)
    assert acknowledged["notifications"] == {"resourceSubscriptions": ["test://note", "test://guest/ada"]}
    for uri in ("test://third", "test://note"):
        await client.call("touch", uri=uri)
    assert (await call.notification(UPDATED))["uri"] == "test://note"
    assert call.notifications == []
    await client.cancel(call)


@cells(since=LATEST)
@requirement("subscriptions/several", "subscriptions/ends")
async def test_subscriptions_of_one_client_are_independent(client: Client) -> None:
    one, other = await listening(client, toolsListChanged=True), await listening(client, toolsListChanged=True)
    await client.call("change", kind="tools")
    await one.notification(CHANGED["tools"])
    await other.notification(CHANGED["tools"])
    await client.cancel(one)
    await client.call("change", kind="tools")
    await other.notification(CHANGED["tools"])
    assert one.notifications == []
    assert not one.answered.done()
    await client.cancel(other)


@cells(since=LATEST)
@requirement("subscriptions/filter")
async def test_subscription_contains_no_progress_and_no_log_messages(client: Client) -> None:
    call = await listening(client, toolsListChanged=True)
    loud = {"_meta": {"io.modelcontextprotocol/logLevel": "debug", "progressToken": "p"}}
    talk = await client.start("tools/call", {"name": "talk", "arguments": {}, **loud})
    await talk.answer()
    await client.call("change", kind="tools")
    await call.notification(CHANGED["tools"])
    assert call.notifications == []
    await client.cancel(call)


@cells(since=LATEST)
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"notifications": None},
        {"notifications": []},
        {"notifications": {"toolsListChanged": "yes"}},
        {"notifications": {"resourceSubscriptions": "test://note"}},
        {"notifications": {"resourceSubscriptions": [1]}},
    ],
    ids=str,
)
@requirement("subscriptions/malformed")
async def test_malformed_subscription_is_invalid_params(client: Client, params: dict[str, Json]) -> None:
    answer = await client.ask("subscriptions/listen", params)
    assert answer.error["code"] == -32602
    assert answer.status in {None, 200}


@cells(since=LATEST)
@requirement("subscriptions/task-ids")
async def test_tasks_require_the_extension(client: Client) -> None:
    wanted: dict[str, Json] = {"notifications": {"taskIds": ["one"]}}
    answer = await client.ask("subscriptions/listen", wanted)
    assert answer.error["code"] == -32021
    assert answer.error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    assert answer.status in {None, 400}
    declared: dict[str, Json] = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}
    call = await client.start("subscriptions/listen", {**wanted, "_meta": declared})
    acknowledged = await call.notification("notifications/subscriptions/acknowledged")
    assert acknowledged["notifications"] == {}
    await client.cancel(call)


@cells(since=LATEST)
@requirement("subscriptions/acknowledged")
async def test_empty_subscription_is_acknowledged(client: Client) -> None:
    call = await listening(client)
    assert not call.answered.done()
    await client.cancel(call)


def _is(value: Json, expected: Json) -> bool:
    return type(value) is type(expected) and value == expected
