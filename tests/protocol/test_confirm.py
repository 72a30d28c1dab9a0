"""`confirm:` a yes runs the tool, and nothing else does."""

import asyncio

import pytest

from gateway.json_types import Json, JsonObject
from tests.protocol.peers import ERAS, House, text


@ERAS
async def test_a_yes_runs_the_tool_and_a_no_does_not(inside: House, era: str) -> None:
    for action, said in [
        ("accept", "deleted a.txt"),
        ("decline", "error: The user declined; nothing was done."),
        ("cancel", "error: The user dismissed the question; nothing was done."),
    ]:
        peer = await inside.of(era, says=lambda *_, action=action: {"action": action})
        assert (await text(peer, "by_shell", file="a.txt")).strip() == said
        [question] = peer.asked
        assert question["params"]["message"] == "Delete a.txt?"


@ERAS
async def test_a_yes_comes_before_the_tools_own_questions(inside: House, era: str) -> None:
    peer = await inside.of(era)
    assert await text(peer, "by_python") == "accept {'name': 'Ada'}"
    assert [question["params"]["message"] for question in peer.asked] == ["Sure?", "Who?"]


@ERAS
async def test_who_cannot_be_asked_is_refused_unless_the_file_says_otherwise(inside: House, era: str) -> None:
    peer = await inside.of(era, capabilities={})
    message = await peer.request("tools/call", {"name": "by_shell", "arguments": {"file": "a"}})
    if era == "modern":
        assert message["error"]["code"] == -32021
    else:
        assert message["result"]["isError"]
    assert await text(peer, "without_asking") == "done"


async def test_a_yes_that_was_not_asked_for_is_no_yes(inside: House) -> None:
    peer = inside.modern()
    yes = {"mcp-gateway.confirm": {"action": "accept", "content": {}}}
    params = {"name": "by_shell", "arguments": {"file": "a"}, "inputResponses": yes}
    answer = await peer.once("tools/call", params)
    assert set(answer["result"]["inputRequests"]) == {"mcp-gateway.confirm"}
    assert answer["result"]["requestState"]


async def asked_to_delete(inside: House, **arguments: Json) -> tuple[JsonObject, JsonObject]:
    """The params of a retry that says yes, and those of the call."""
    peer = inside.modern(principal="ada")
    params = {"name": "by_shell", "arguments": {"file": "a", **arguments}}
    result = (await peer.once("tools/call", params))["result"]
    return {**params, **peer.answers(result)}, params


async def test_a_yes_counts_once(inside: House) -> None:
    peer = inside.modern(principal="ada")
    retry, _ = await asked_to_delete(inside)
    first, second = [(await peer.once("tools/call", retry))["result"] for _ in range(2)]
    assert first["content"][0]["text"].strip() == "deleted a"
    assert second["resultType"] == "input_required"


async def test_of_two_that_say_the_same_yes_at_once_one_is_asked_again(inside: House) -> None:
    peer = inside.modern(principal="ada")
    retry, _ = await asked_to_delete(inside)
    both = await asyncio.gather(*(peer.once("tools/call", retry) for _ in range(2)))
    assert sorted(message["result"]["resultType"] for message in both) == ["complete", "input_required"]


@pytest.mark.parametrize(
    ("change", "principal"),
    [
        ({"arguments": {"file": "b"}}, "ada"),
        ({"name": "without_asking", "arguments": {}}, "ada"),
        ({}, "bob"),
        ({}, None),
        ({"requestState": "forged"}, "ada"),
        ({"requestState": 7}, "ada"),
        ({"requestState": ["a"]}, "ada"),
    ],
)
async def test_a_yes_counts_for_what_was_asked_alone(inside: House, change: JsonObject, principal: str | None) -> None:
    retry, _ = await asked_to_delete(inside)
    message = await inside.modern(principal=principal).once("tools/call", {**retry, **change})
    assert message["error"]["code"] == -32602
    assert "`requestState`" in message["error"]["message"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("command: [echo, deleted,", "command: [echo, removed,"),
        ('confirm: "Delete {{ file }}?"', 'confirm: "Keep {{ file }}?"'),
        ("description: Deletes a file.", "description: Keeps a file."),
    ],
)
async def test_an_edit_between_question_and_answer_asks_again(inside: House, old: str, new: str) -> None:
    retry, _ = await asked_to_delete(inside)
    await inside.edit(old, new)
    result = (await inside.modern(principal="ada").once("tools/call", retry))["result"]
    assert result["resultType"] == "input_required"


async def test_an_edit_of_the_plugin_between_question_and_answer_asks_again(inside: House) -> None:
    peer = inside.modern()
    result = (await peer.once("tools/call", {"name": "by_python"}))["result"]
    retry = {"name": "by_python", **peer.answers(result)}
    await inside.edit('"Who?"', '"Who is it?"', file="plugins/questions.py")
    assert set((await peer.once("tools/call", retry))["result"]["inputRequests"]) == {"mcp-gateway.confirm"}


async def test_an_edit_of_something_else_asks_nothing_again(inside: House) -> None:
    retry, _ = await asked_to_delete(inside)
    await inside.edit("confirm: Sure?", "confirm: Really?")
    result = (await inside.modern(principal="ada").once("tools/call", retry))["result"]
    assert result["resultType"] == "complete"
