"""All kinds of questions to a client, in a coroutine and in a thread."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.plugin import Answer, Context, ProtocolError, Sample, SyncContext

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FORM = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "default": "John"},
        "number": {"type": "number", "default": 1.5},
        "flag": {"type": "boolean", "default": True},
        "one": {"type": "string", "enum": ["a", "b"], "default": "b"},
        "titled": {"type": "string", "oneOf": [{"const": "a", "title": "A"}], "default": "a"},
    },
}
SEVERAL: Mapping[str, Mapping[str, Any]] = {
    "name": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": NAME}},
    "again": {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "twice"}}], "maxTokens": 5},
    },
    "where": {"method": "roots/list"},
}
OWN = tempfile.mkdtemp()
atexit.register(shutil.rmtree, OWN, ignore_errors=True)
STEPS = Path(os.environ.get("MCP_GATEWAY_TEST_CALL_STATES", OWN)) / "steps"
"""A file with a line for each step, which all processes of a test share."""


async def on_the_loop(context: Context) -> dict[str, Any]:
    """Ask all kinds of questions, one after the other and several at once."""
    await context.once("step", step)
    form = await context.elicit("form", "Fill in", FORM)
    sample = await context.sample("sample", "Say something", system_prompt="Be brief", max_tokens=50)
    roots = await context.list_roots("roots")
    several = await context.ask(SEVERAL)
    return told(form, sample, several, roots=[root["uri"] for root in roots])


def in_a_thread(context: SyncContext) -> dict[str, Any]:
    """Do the same in a thread."""
    context.once("step", take_step)
    form = context.elicit("form", "Fill in", FORM)
    sample = context.sample("sample", "Say something", system_prompt="Be brief", max_tokens=50)
    roots = context.list_roots("roots")
    several = context.ask(SEVERAL)
    return told(form, sample, several, roots=[root["uri"] for root in roots])


async def step() -> None:
    """Record a step that must run only once per call."""
    take_step()


def take_step() -> None:
    with STEPS.open("a") as steps:
        steps.write("step\n")


def told(form: Answer, sample: Sample, several: Mapping[str, Any], *, roots: list[str]) -> dict[str, Any]:
    return {
        "form": form.content,
        "sample": sample.text,
        "model": sample.model,
        "roots": roots,
        "several": sorted(several),
        "name": several["name"]["content"]["name"],
    }


async def steps() -> int:
    """Return the number of steps since the last call of this tool."""
    taken = len(STEPS.read_text().splitlines()) if STEPS.exists() else 0
    STEPS.unlink(missing_ok=True)
    return taken


async def named(context: Context) -> str:
    """Ask for a name."""
    answer = await context.elicit("name", "Who?", NAME)
    return f"{answer.action} {answer.content}"


async def linked(context: Context) -> str:
    """Send the user to a page."""
    return (await context.elicit_url("link", "Log in", "https://example.com/login")).action


async def chosen(context: Context) -> str:
    """Ask for several choices."""
    choices = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    answer = await context.elicit("choices", "Which?", {"type": "object", "properties": {"many": choices}})
    return f"{answer.action} {answer.content}"


async def chatty(context: Context, times: int) -> str:
    """Ask the model repeatedly."""
    for number in range(times):
        await context.sample(f"sample {number}", f"{number}", max_tokens=1000)
    return "said enough"


async def prompted(context: Context) -> str:
    """Create a prompt with the given name."""
    return f"Dear {await name_of(context)}"


async def read(context: Context) -> str:
    """Return a resource that depends on the given name."""
    return f"Hello {await name_of(context)}"


async def reads(context: Context) -> str:
    """Read a resource that asks a question."""
    text: str = (await context.read_resource("x://asks"))[0]["text"]
    return text


async def name_of(context: Context) -> str:
    answer = await context.elicit("name", "Who?", NAME)
    if answer.content is None:
        raise ProtocolError(1, "nobody")
    name: str = answer.content["name"]
    return name
