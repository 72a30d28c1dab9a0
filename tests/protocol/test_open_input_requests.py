"""Open input requests of legacy clients: timeout, permit, and missing responses."""

import asyncio
from typing import Final

import pytest

from gateway.json_types import JsonObject
from tests.protocol.peers import SECONDS, LegacyPeer, LocalGateway, accept_all, silent, text

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def begun(peer: LegacyPeer, tool: str) -> tuple[asyncio.Task[str], JsonObject]:
    """Start a call that waits for a response, and return it with its request."""
    calling = asyncio.create_task(text(peer, tool))
    async with asyncio.timeout(SECONDS):
        return calling, await peer.questions.get()


NAME: Final = {"action": "accept", "content": {"name": "Ada"}}


async def test_open_request_pauses_the_timeout(asking: LocalGateway) -> None:
    peer = await asking.legacy(respond=silent)
    for tool in ("short", "reads"):  # the second reads a resource that sends a request
        calling, question = await begun(peer, tool)
        await asyncio.sleep(0.5)  # longer than the tool's timeout
        assert not calling.done()
        await peer.answer(question["id"], result=NAME)
        assert not (await calling).startswith("error")


async def test_open_request_releases_the_permit(asking: LocalGateway) -> None:
    peer = await asking.legacy(respond=silent)
    calls = [await begun(peer, "alone") for _ in range(5)]  # all wait, although `concurrency` is 1
    slots = asking.dispatcher.concurrency
    assert (slots.running, slots.waiting) == (0, 0)
    for _, question in calls:
        await peer.answer(question["id"], result=NAME)
    assert {await calling for calling, _ in calls} == {"accept {'name': 'Ada'}"}


async def test_missing_response_is_an_error_after_ask_timeout(asking: LocalGateway) -> None:
    peer = await asking.legacy(respond=silent)
    calling, question = await begun(peer, "hurried")
    assert await calling == "error: The client's response to 'name' timed out after 0.1 s (ask_timeout)"
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": question["id"]}}
    assert peer.sent == [cancelled]
    await peer.answer(question["id"], result=NAME)  # too late
    assert peer.session.pending_answers == {}


async def test_cancelled_call_cancels_its_requests(asking: LocalGateway) -> None:
    peer = await asking.legacy(respond=silent)
    calling = asyncio.create_task(peer.request("tools/call", {"name": "together"}))
    questions = [await asyncio.wait_for(peer.questions.get(), SECONDS) for _ in range(2)]
    await peer.notify("notifications/cancelled", {"requestId": 1})
    assert await asyncio.wait_for(calling, SECONDS) == {}
    withdrawn = {message["params"]["requestId"] for message in peer.sent}
    assert withdrawn == {question["id"] for question in questions}
    assert peer.session.pending_answers == {}


async def test_unanswered_request_is_cancelled_at_the_end_of_the_call(asking: LocalGateway) -> None:
    peer = await asking.legacy(respond=silent)
    assert await text(peer, "leaves_one_open") == "done without it"
    assert [message["method"] for message in peer.sent] == ["notifications/cancelled"]
    assert peer.session.pending_answers == {}
    assert await text(peer, "what_became_of_it") == "cancelled"


async def test_call_cancelled_while_draining_cancels_its_requests(asking: LocalGateway) -> None:
    is_sending = asyncio.Event()

    class SlowPeer(LegacyPeer):
        async def send(self, message: JsonObject) -> bool:
            if message["method"] == "notifications/progress":
                is_sending.set()
                await asyncio.Event().wait()
            return await super().send(message)

    peer = await SlowPeer(asking.dispatcher, respond=silent).open()
    params = {"name": "leaves_one_open", "_meta": {"progressToken": 1}}
    calling = asyncio.create_task(peer.request("tools/call", params))
    question = await asyncio.wait_for(peer.questions.get(), SECONDS)
    await asyncio.wait_for(is_sending.wait(), SECONDS)
    await peer.notify("notifications/cancelled", {"requestId": 1})
    assert await asyncio.wait_for(calling, SECONDS) == {}
    assert [message["params"] for message in peer.sent] == [{"requestId": question["id"]}]
    assert peer.session.pending_answers == {}


async def test_failed_request_cancels_concurrent_requests(asking: LocalGateway) -> None:
    peer = await asking.legacy(respond=silent)
    calling = asyncio.create_task(text(peer, "on_the_loop"))
    for _ in range(3):
        question = await asyncio.wait_for(peer.questions.get(), SECONDS)
        await peer.answer(question["id"], result=accept_all(question["method"], question["params"]))
    several = [await asyncio.wait_for(peer.questions.get(), SECONDS) for _ in range(3)]
    await peer.answer(several[1]["id"], error={"code": -1, "message": "User rejected sampling request"})
    assert await calling == "error: The client refused 'again': User rejected sampling request"
    withdrawn = {message["params"]["requestId"] for message in peer.sent}
    assert withdrawn == {several[0]["id"], several[2]["id"]}


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ({"error": {"code": -1, "message": "no"}}, "error: The client refused 'name': no"),
        ({"error": None}, "error: The response to 'name' must be an object"),
        ({"error": "no"}, "error: The client refused 'name': no reason was given"),
        ({"error": {"message": "x" * 5000}}, f"error: The client refused 'name': {'x' * 1000}"),
        ({"result": None}, "error: The response to 'name' must be an object"),
        ({"result": []}, "error: The response to 'name' must be an object"),
        (
            {"result": {"action": "?"}},
            "error: The response to 'name' must have an `action`: one of accept, decline, cancel",
        ),
    ],
)
async def test_malformed_response_fails_the_call_with_a_reason(
    asking: LocalGateway, response: JsonObject, said: str
) -> None:
    peer = await asking.legacy(respond=silent)
    calling, question = await begun(peer, "named")
    await peer.answer(question["id"], **response)
    assert await calling == said


async def test_response_from_another_session_is_ignored(asking: LocalGateway) -> None:
    peer, other = await asking.legacy(respond=silent), await asking.legacy()
    calling, question = await begun(peer, "named")
    await other.answer(question["id"], result=NAME)
    for request_id in (None, 7, "gateway-0", ""):
        await peer.answer(request_id, result=NAME)
    await asyncio.sleep(0.05)
    assert not calling.done()
    await peer.answer(question["id"], result=NAME)
    await peer.answer(question["id"], result={"action": "decline"})  # the first response counted
    assert await calling == "accept {'name': 'Ada'}"


async def test_unreachable_client_is_an_error_at_once(asking: LocalGateway) -> None:
    peer = await asking.legacy()
    peer.receives = False
    assert "The input request 'name' cannot be sent" in await text(peer, "named")
