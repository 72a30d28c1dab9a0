"""`confirm:` only runs a tool after the user has accepted the call."""

import asyncio

import pytest

from gateway.json_types import Json, JsonObject
from tests.protocol.peers import ERAS, LocalGateway, text


@ERAS
async def test_confirmation_precedes_input_requests_of_the_tool(inside: LocalGateway, era: str) -> None:
    peer = await inside.of(era)
    assert await text(peer, "by_python") == "accept {'name': 'Ada'}"
    assert [question["params"]["message"] for question in peer.asked] == ["Sure?", "Who?"]


async def test_unrequested_confirmation_is_ignored(inside: LocalGateway) -> None:
    peer = inside.modern()
    yes = {"mcp-gateway.confirm": {"action": "accept", "content": {}}}
    params = {"name": "by_shell", "arguments": {"file": "a"}, "inputResponses": yes}
    answer = await peer.once("tools/call", params)
    assert set(answer["result"]["inputRequests"]) == {"mcp-gateway.confirm"}
    assert answer["result"]["requestState"]


async def asked_to_delete(inside: LocalGateway, **arguments: Json) -> tuple[JsonObject, JsonObject]:
    """Return the parameters of a retry that accepts the confirmation, and the parameters of the call."""
    peer = inside.modern(principal="ada")
    params = {"name": "by_shell", "arguments": {"file": "a", **arguments}}
    result = (await peer.once("tools/call", params))["result"]
    return {**params, **peer.answers(result)}, params


async def test_concurrent_retries_use_a_confirmation_once(inside: LocalGateway) -> None:
    peer = inside.modern(principal="ada")
    retry, _ = await asked_to_delete(inside)
    both = await asyncio.gather(*(peer.once("tools/call", retry) for _ in range(2)))
    assert sorted(message["result"]["resultType"] for message in both) == ["complete", "input_required"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("command: [echo, deleted,", "command: [echo, removed,"),
        ('confirm: "Delete {{ file }}?"', 'confirm: "Keep {{ file }}?"'),
        ("description: Deletes a file.", "description: Keeps a file."),
    ],
)
async def test_changed_definition_requires_a_new_confirmation(inside: LocalGateway, old: str, new: str) -> None:
    retry, _ = await asked_to_delete(inside)
    await inside.edit(old, new)
    result = (await inside.modern(principal="ada").once("tools/call", retry))["result"]
    assert result["resultType"] == "input_required"


async def test_changed_plugin_requires_a_new_confirmation(inside: LocalGateway) -> None:
    peer = inside.modern()
    result = (await peer.once("tools/call", {"name": "by_python"}))["result"]
    retry = {"name": "by_python", **peer.answers(result)}
    await inside.edit('"Who?"', '"Who is it?"', file="plugins/questions.py")
    assert set((await peer.once("tools/call", retry))["result"]["inputRequests"]) == {"mcp-gateway.confirm"}


async def test_unrelated_change_keeps_the_confirmation(inside: LocalGateway) -> None:
    retry, _ = await asked_to_delete(inside)
    await inside.edit("confirm: Sure?", "confirm: Really?")
    result = (await inside.modern(principal="ada").once("tools/call", retry))["result"]
    assert result["resultType"] == "complete"
