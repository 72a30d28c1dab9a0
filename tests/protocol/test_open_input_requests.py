"""While a question is open (legacy): the clock, the place, and every way in which no answer comes."""

import asyncio
from typing import Final

import pytest

from gateway.json_types import JsonObject
from tests.protocol.peers import SECONDS, House, LegacyPeer, say, silent, text

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def begun(peer: LegacyPeer, tool: str) -> tuple[asyncio.Task[str], JsonObject]:
    """A call that waits for an answer, and its question."""
    calling = asyncio.create_task(text(peer, tool))
    async with asyncio.timeout(SECONDS):
        return calling, await peer.questions.get()


NAME: Final = {"action": "accept", "content": {"name": "Ada"}}


async def test_the_clock_stands_still_while_a_question_is_open(asking: House) -> None:
    peer = await asking.legacy(says=silent)
    for tool in ("short", "reads"):  # also where a resource that the tool reads asks
        calling, question = await begun(peer, tool)
        await asyncio.sleep(0.5)  # longer than the tool's timeout
        assert not calling.done()
        await peer.answer(question["id"], result=NAME)
        assert not (await calling).startswith("error")


async def test_others_use_the_place_while_a_question_is_open(asking: House) -> None:
    peer = await asking.legacy(says=silent)
    calls = [await begun(peer, "alone") for _ in range(5)]  # all of them wait, though one may run at once
    slots = asking.dispatcher.concurrency
    assert (slots.running, slots.waiting) == (0, 0)
    for _, question in calls:
        await peer.answer(question["id"], result=NAME)
    assert {await calling for calling, _ in calls} == {"accept {'name': 'Ada'}"}


async def test_an_answer_that_does_not_come_is_an_error_in_time(asking: House) -> None:
    peer = await asking.legacy(says=silent)
    calling, question = await begun(peer, "hurried")
    assert await calling == "error: The client's answer to 'name' timed out after 0.1 s (ask_timeout)"
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": question["id"]}}
    assert peer.sent == [cancelled]
    await peer.answer(question["id"], result=NAME)  # too late
    assert peer.session.pending_answers == {}


async def test_a_cancelled_call_withdraws_its_questions(asking: House) -> None:
    peer = await asking.legacy(says=silent)
    calling = asyncio.create_task(peer.request("tools/call", {"name": "together"}))
    questions = [await asyncio.wait_for(peer.questions.get(), SECONDS) for _ in range(2)]
    await peer.notify("notifications/cancelled", {"requestId": 1})
    assert await asyncio.wait_for(calling, SECONDS) == {}
    withdrawn = {message["params"]["requestId"] for message in peer.sent}
    assert withdrawn == {question["id"] for question in questions}
    assert peer.session.pending_answers == {}


async def test_a_question_that_is_left_open_is_withdrawn_with_the_call(asking: House) -> None:
    peer = await asking.legacy(says=silent)
    assert await text(peer, "leaves_one_open") == "done without it"
    assert [message["method"] for message in peer.sent] == ["notifications/cancelled"]
    assert peer.session.pending_answers == {}
    assert await text(peer, "what_became_of_it") == "cancelled"


async def test_a_call_that_is_cancelled_while_its_last_messages_are_sent_withdraws_its_questions(asking: House) -> None:
    is_sending = asyncio.Event()

    class SlowPeer(LegacyPeer):
        async def send(self, message: JsonObject) -> bool:
            if message["method"] == "notifications/progress":
                is_sending.set()
                await asyncio.Event().wait()
            return await super().send(message)

    peer = await SlowPeer(asking.dispatcher, says=silent).open()
    params = {"name": "leaves_one_open", "_meta": {"progressToken": 1}}
    calling = asyncio.create_task(peer.request("tools/call", params))
    question = await asyncio.wait_for(peer.questions.get(), SECONDS)
    await asyncio.wait_for(is_sending.wait(), SECONDS)
    await peer.notify("notifications/cancelled", {"requestId": 1})
    assert await asyncio.wait_for(calling, SECONDS) == {}
    assert [message["params"] for message in peer.sent] == [{"requestId": question["id"]}]
    assert peer.session.pending_answers == {}


async def test_the_first_that_fails_withdraws_the_others(asking: House) -> None:
    peer = await asking.legacy(says=silent)
    calling = asyncio.create_task(text(peer, "on_the_loop"))
    for _ in range(3):
        question = await asyncio.wait_for(peer.questions.get(), SECONDS)
        await peer.answer(question["id"], result=say(question["method"], question["params"]))
    several = [await asyncio.wait_for(peer.questions.get(), SECONDS) for _ in range(3)]
    await peer.answer(several[1]["id"], error={"code": -1, "message": "User rejected sampling request"})
    assert await calling == "error: The client refused 'again': User rejected sampling request"
    withdrawn = {message["params"]["requestId"] for message in peer.sent}
    assert withdrawn == {several[0]["id"], several[2]["id"]}


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ({"error": {"code": -1, "message": "no"}}, "error: The client refused 'name': no"),
        ({"error": None}, "error: The answer to 'name' must be an object"),
        ({"error": "no"}, "error: The client refused 'name': it gave no reason"),
        ({"error": {"message": "x" * 5000}}, f"error: The client refused 'name': {'x' * 1000}"),
        ({"result": None}, "error: The answer to 'name' must be an object"),
        ({"result": []}, "error: The answer to 'name' must be an object"),
        (
            {"result": {"action": "?"}},
            "error: The answer to 'name' must have an `action`: one of accept, decline, cancel",
        ),
    ],
)
async def test_an_odd_response_is_a_failure_that_says_why(asking: House, response: JsonObject, said: str) -> None:
    peer = await asking.legacy(says=silent)
    calling, question = await begun(peer, "named")
    await peer.answer(question["id"], **response)
    assert await calling == said


async def test_nobody_else_can_answer(asking: House) -> None:
    peer, other = await asking.legacy(says=silent), await asking.legacy()
    calling, question = await begun(peer, "named")
    await other.answer(question["id"], result=NAME)
    for request_id in (None, 7, "gateway-0", ""):
        await peer.answer(request_id, result=NAME)
    await asyncio.sleep(0.05)
    assert not calling.done()
    await peer.answer(question["id"], result=NAME)
    await peer.answer(question["id"], result={"action": "decline"})  # the first one counted
    assert await calling == "accept {'name': 'Ada'}"


async def test_whom_a_question_cannot_reach_does_not_wait_for_an_answer(asking: House) -> None:
    peer = await asking.legacy()
    peer.hears = False
    assert "cannot be asked 'name'" in await text(peer, "named")
