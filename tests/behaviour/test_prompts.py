"""Getting prompts."""

from typing import Final

import pytest

from gateway.json_types import Json
from tests.behaviour.cells import cells
from tests.behaviour.client import Client
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")

INVALID: Final[list[Json]] = [
    {},
    {"name": 3},
    {"name": "no_such"},
    {"name": "asks"},
    {"name": "asks", "arguments": {"how": "coldly"}},
    {"name": "asks", "arguments": {"who": 3}},
    {"name": "asks", "arguments": {"who": "Ada", "extra": "x"}},
    {"name": "asks", "arguments": ["Ada"]},
]


@cells()
@requirement("prompts/get")
async def test_arguments_are_filled_in(client: Client) -> None:
    plain = (await client.ask("prompts/get", {"name": "plain"})).result
    assert plain["description"] == "One message."
    assert plain["messages"] == [{"role": "user", "content": {"type": "text", "text": "Good morning."}}]
    asked = (await client.ask("prompts/get", {"name": "asks", "arguments": {"who": "Ada {{ 7*7 }}"}})).result
    assert [(message["role"], message["content"]["text"]) for message in asked["messages"]] == [
        ("user", "Greet Ada {{ 7*7 }} warmly."),
        ("assistant", "Hello, Ada {{ 7*7 }}."),
    ]


@cells()
@requirement("prompts/invalid")
async def test_failing_prompt_is_invalid_params(client: Client) -> None:
    for params in INVALID:
        answer = await client.ask("prompts/get", params)
        assert answer.error["code"] == -32602, params
        assert answer.status in {None, 200}


@cells()
@requirement("content/blocks", "prompts/content")
async def test_content_is_downgraded_for_the_revision(client: Client) -> None:
    revision = client.cell.revision
    messages = (await client.ask("prompts/get", {"name": "shows"})).result["messages"]
    audio, link, image, note, noted = (message["content"] for message in messages)
    assert audio["type"] == ("audio" if revision >= "2025-03-26" else "resource")
    assert link["type"] == ("resource_link" if revision >= "2025-06-18" else "text")
    assert image["type"] == "image"
    assert note["resource"] == {"uri": "test://note", "mimeType": "text/plain", "text": "Remember."}
    assert ("lastModified" in noted["annotations"]) == (revision >= "2025-06-18")
