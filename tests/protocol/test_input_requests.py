"""Asking the client: a plugin that is written once, and its mistakes, in both eras."""

from typing import Final

import pytest

from gateway.json_types import JsonObject
from tests.protocol.peers import ERAS, House, call, text

pytestmark = pytest.mark.asyncio(loop_scope="session")

TWICE: Final = pytest.mark.parametrize("where", ["on_the_loop", "in_a_thread"])


@ERAS
@TWICE
async def test_a_plugin_written_once_asks_everything_in_both_eras(asking: House, era: str, where: str) -> None:
    peer = await asking.of(era)
    assert (await call(peer, where))["structuredContent"] == {
        "form": {"text": "John", "number": 1.5, "flag": True, "one": "b", "titled": "a"},
        "sample": "echo Say something",
        "model": "parrot",
        "roots": ["file:///home/ada"],
        "several": ["again", "name", "where"],
        "name": "Ada",
    }
    assert len(peer.asked) == 6
    assert await text(peer, "steps") == "1"


@ERAS
async def test_a_prompt_and_a_resource_can_ask_too(asking: House, era: str) -> None:
    peer = await asking.of(era)
    letter = await peer.request("prompts/get", {"name": "letter"})
    assert letter["result"]["messages"][0]["content"]["text"] == "Dear Ada"
    read = await peer.request("resources/read", {"uri": "x://asks"})
    assert read["result"]["contents"][0]["text"] == "Hello Ada"


@ERAS
@pytest.mark.parametrize(
    ("action", "said"), [("decline", "decline None"), ("cancel", "cancel None"), ("accept", "accept {'name': 'Ada'}")]
)
async def test_a_refusal_is_an_answer(asking: House, era: str, action: str, said: str) -> None:
    peer = await asking.of(era, says=lambda *_: {"action": action, "content": {"name": "Ada"}})
    assert await text(peer, "named") == said


@ERAS
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("catches", {"what": "Exception"}),
        ("catches", {"what": "BaseException"}),
        ("catches_in_a_thread", {}),
        ("turns_into_an_error", {}),
    ],
)
async def test_no_code_gets_past_its_own_question(asking: House, era: str, tool: str, arguments: JsonObject) -> None:
    peer = await asking.of(era)
    assert await text(peer, tool, **arguments) == "answered"
    assert len(peer.asked) == 1


@ERAS
@pytest.mark.parametrize("tool", ["together", "in_a_group", "in_threads"])
async def test_questions_beside_each_other_go_out_together(asking: House, era: str, tool: str) -> None:
    peer = await asking.of(era)
    assert await text(peer, tool) == "accept accept"
    assert len(peer.asked) == 2
    if era == "modern" and tool != "in_threads":
        answer = await asking.modern().once("tools/call", {"name": tool})
        assert set(answer["result"]["inputRequests"]) == {"first", "second"}


@ERAS
async def test_a_key_belongs_to_one_question(asking: House, era: str) -> None:
    peer = await asking.of(era)
    assert await text(peer, "same_key") == "error: The key 'key' belongs to another question of this call already"
    assert len(peer.asked) == 1


@ERAS
async def test_the_key_of_confirm_is_not_for_authors(asking: House, era: str) -> None:
    assert await text(await asking.of(era), "reserved") == "error: The key mcp-gateway.confirm is the gateway's own"


@ERAS
async def test_a_question_that_no_client_could_answer_is_not_asked(asking: House, era: str) -> None:
    peer = await asking.of(era)
    assert "neither text, a number, a boolean nor a choice: deep" in await text(peer, "malformed")
    assert peer.asked == []


@ERAS
async def test_what_is_kept_is_json_and_no_secret(asking: House, era: str) -> None:
    peer = await asking.of(era)
    assert await text(peer, "keeps", what="tuple") == "[1, 2]"
    assert await text(peer, "keeps", what="large") == str(2**70)
    for what in ("object", "secret", "nan"):
        said = await text(peer, "keeps", what=what)
        assert "failed; correlation id" in said
        assert "hunter2" not in said


@ERAS
async def test_nothing_is_asked_once_the_call_has_ended(asking: House, era: str) -> None:
    peer = await asking.of(era)
    assert await text(peer, "asks_too_late") == "done"
    assert await text(peer, "what_became_of_it") == "The call has ended"
    assert peer.asked == []


@ERAS
async def test_who_cannot_be_asked_is_told_so(asking: House, era: str) -> None:
    peer = await asking.of(era, capabilities={"sampling": {}})
    message = await peer.request("tools/call", {"name": "named", "arguments": {}})
    if era == "modern":
        assert message["error"]["code"] == -32021
        assert message["error"]["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
    else:
        assert message["result"]["isError"]
        assert message["result"]["content"][0]["text"] == "This needs a client with the capability elicitation"
    assert peer.asked == []


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
async def test_revisions_without_elicitation_are_not_asked(asking: House, revision: str) -> None:
    peer = await asking.legacy(revision=revision)
    assert await text(peer, "named") == "error: This needs a client with the capability elicitation"
    assert await text(peer, "without_asking") == "done"
    assert peer.asked == []


async def test_2025_06_18_is_asked_in_its_own_form(asking: House) -> None:
    peer = await asking.legacy(revision="2025-06-18")
    assert not (await call(peer, "on_the_loop")).get("isError")
    titled = peer.asked[0]["params"]["requestedSchema"]["properties"]["titled"]
    assert titled == {"type": "string", "enum": ["a"], "enumNames": ["A"]}
    assert await text(peer, "linked") == "error: This needs a client with the capability elicitation"
    assert "cannot choose several values, as 'many' wants" in await text(peer, "chosen")
    assert len(peer.asked) == 6


async def test_2025_11_25_gets_an_id_with_each_link(asking: House) -> None:
    peer = await asking.legacy()
    assert await text(peer, "linked") == "accept"
    assert set(peer.asked[0]["params"]) == {"mode", "message", "url", "elicitationId"}


@ERAS
async def test_a_secret_is_masked_in_a_question(asking: House, era: str) -> None:
    peer = await asking.of(era)
    assert await text(peer, "says_the_secret") == "accept"
    assert "hunter2" not in peer.asked[0]["params"]["message"]
