"""Ways to cancel a call, and the callers who can use them."""

import pytest

from gateway.json_types import Json
from tests.behaviour.cells import HTTP, LATEST, LATEST_LEGACY, SSE, cells
from tests.behaviour.client import Call, Client
from tests.behaviour.conftest import NewClient
from tests.behaviour.wires import SseWire
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def running(client: Client, key: str) -> Call:
    """Start a call that runs until it is released."""
    call = await client.begin("wait", key=key)
    assert (await client.call("reach", key=key, state="running")).text == "running"
    return call


@cells()
@requirement("cancellation/stops", "cancellation/no-answer")
async def test_cancelled_call_stops_without_a_response(client: Client) -> None:
    key = f"cancelled {client.cell}"
    call = await running(client, key)
    await client.cancel(call)
    assert (await client.call("reach", key=key, state="cancelled")).text == "cancelled"
    assert not call.answered.done()
    assert (await client.call("say")).text == "You said nothing."


@cells()
@requirement("cancellation/unknown")
async def test_cancellation_of_an_unknown_request_is_ignored(client: Client) -> None:
    key = f"kept {client.cell}"
    call = await running(client, key)
    other_type = str(call.id) if isinstance(call.id, int) else call.id
    ids: list[Json] = [987654, other_type, None, True, [], {}]
    for request_id in ids:
        await client.notify("notifications/cancelled", {"requestId": request_id})
    await client.notify("notifications/cancelled")
    await client.call("release", key=key)
    assert (await call.answer()).text == "released"
    if not (client.cell.is_modern and client.cell.is_http):
        await client.cancel(call)
    assert (await client.call("say")).text == "You said nothing."


@cells(until=LATEST_LEGACY, binding=HTTP)
@requirement("http/disconnect-is-not-cancellation")
async def test_session_call_outlives_its_connection(client: Client) -> None:
    key = f"left {client.cell}"
    call = await running(client, key)
    await client.wire.leave(call)
    await client.call("release", key=key)
    assert (await client.call("reach", key=key, state="finished")).text == "finished"


@cells(binding=SSE)
@requirement("sse/disconnect-is-cancellation")
async def test_closing_an_sse_stream_ends_its_calls(client: Client, new_client: NewClient) -> None:
    key = f"closed {client.cell}"
    call = await running(client, key)
    assert isinstance(client.wire, SseWire)
    await client.wire.close()
    other = await new_client(client.cell)
    assert (await other.call("reach", key=key, state="cancelled")).text == "cancelled"
    assert not call.answered.done()


@cells(since=LATEST, binding=HTTP)
@requirement("http/no-cancelled-notification")
async def test_modern_http_call_is_cancelled_only_by_closing(client: Client) -> None:
    key = f"posted {client.cell}"
    call = await running(client, key)
    await client.notify("notifications/cancelled", {"requestId": call.id})
    await client.call("release", key=key)
    assert (await call.answer()).text == "released"
