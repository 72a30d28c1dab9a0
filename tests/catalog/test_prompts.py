"""Compiled prompts: arguments and messages."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.catalog.primitives import Prompt
from gateway.errors import ExecutionError
from gateway.executors.invocation import Invocation
from gateway.json_types import JsonObject
from tests.catalog.conftest import Compile
from tests.executors.recording import RecordingContext, make_invocation

PLUGIN = '''
from typing import Literal

from gateway.plugin import Context, Image, Text


def text(topic: str, tone: Literal["dry", "warm"] = "dry", to: str | None = None) -> str:
    """Say something."""
    return f"{topic}, {tone}"


async def talk(context: Context, topic: str) -> list:
    return [
        {"role": "user", "content": topic},
        {"role": "assistant", "content": [Image(b"x", "image/png"), "and"]},
        Text("then"),
        {"role": "user", "content": {"type": "text", "text": "end"}},
        {"user": "as in the file"},
        {"assistant": ["two", Text("blocks")]},
    ]


def wrong() -> list:
    return [5]
'''


class ReadingContext(RecordingContext):
    async def read_resource(self, uri: str) -> Sequence[JsonObject]:
        return [{"uri": uri, "text": "runbook"}]


def say(role: str, text: str) -> JsonObject:
    return {"role": role, "content": {"type": "text", "text": text}}


async def rendered(prompt: Prompt, invocation: Invocation) -> list[JsonObject]:
    outcome = await prompt.executor.execute(invocation)
    return [*(await prompt.messages(outcome, invocation)).content]


@pytest.fixture
def plugins(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "talking.py").write_text(PLUGIN)


async def test_each_block_becomes_a_rendered_message(compiled: Compile) -> None:
    prompt = compiled("""
        prompts:
          triage:
            title: Triage
            description: Work through an alert.
            arguments:
              service: {description: Service name, required: true, complete: [api, web]}
              when: When it began
            messages:
              - user: ["Triage {{ service }}{% if when %} since {{ when }}{% endif %}.", {resource: "run:///{service}.md"}]
              - assistant: "I have read it."
    """).prompts["triage"]
    assert prompt.definition == {
        "name": "triage",
        "title": "Triage",
        "description": "Work through an alert.",
        "arguments": [
            {"name": "service", "description": "Service name", "required": True},
            {"name": "when", "description": "When it began", "required": False},
        ],
    }
    assert {name: each.required for name, each in prompt.arguments.items()} == {"service": True, "when": False}
    messages = await rendered(prompt, make_invocation({"service": "a b"}, context=ReadingContext()))
    assert messages == [
        say("user", "Triage a b."),
        {"role": "user", "content": {"type": "resource", "resource": {"uri": "run:///a%20b.md", "text": "runbook"}}},
        say("assistant", "I have read it."),
    ]
    assert (await prompt.completers["service"]("W", {}, make_invocation())).values == ("web",)


@pytest.mark.usefixtures("plugins")
async def test_prompt_function_can_return_text(compiled: Compile) -> None:
    prompt = compiled("""
        plugins: [plugins]
        prompts: {text: {python: "talking:text"}}
    """).prompts["text"]
    assert prompt.definition["description"] == "Say something."
    assert {name: each.required for name, each in prompt.arguments.items()} == {
        "topic": True,
        "tone": False,
        "to": False,
    }
    assert await rendered(prompt, make_invocation({"topic": "x"})) == [say("user", "x, dry")]
    assert (await prompt.completers["tone"]("", {}, make_invocation())).values == ("dry", "warm")


@pytest.mark.usefixtures("plugins")
async def test_prompt_function_can_return_messages_and_content(compiled: Compile) -> None:
    prompt = compiled("""
        plugins: [plugins]
        prompts: {talk: {python: "talking:talk"}}
    """).prompts["talk"]
    assert await rendered(prompt, make_invocation({"topic": "x"})) == [
        say("user", "x"),
        {"role": "assistant", "content": {"type": "image", "data": "eA==", "mimeType": "image/png"}},
        say("assistant", "and"),
        say("user", "then"),
        say("user", "end"),
        say("user", "as in the file"),
        say("assistant", "two"),
        say("assistant", "blocks"),
    ]


@pytest.mark.usefixtures("plugins")
async def test_invalid_result_of_a_prompt_function_is_explained(compiled: Compile) -> None:
    prompt = compiled("""
        plugins: [plugins]
        prompts: {wrong: {python: "talking:wrong"}}
    """).prompts["wrong"]
    with pytest.raises(ExecutionError, match="this one returned int"):
        await rendered(prompt, make_invocation())
