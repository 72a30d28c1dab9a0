"""Functions for `config/everything.yaml`."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from gateway.plugin import Answer, Context, ProtocolError, ToolError


async def with_progress(context: Context) -> str:
    """Reports progress in three steps."""
    for done in (0, 50, 100):
        await context.progress(done, 100, f"{done} of 100")
        await asyncio.sleep(0.05)
    return "Done, in three steps."


async def with_logging(context: Context) -> str:
    """Logs three messages."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.log("info", message)
        await asyncio.sleep(0.05)
    return "Done, with three log messages."


async def reconnection(context: Context) -> str:
    """Closes its stream, so that the client must reconnect for the result."""
    await context.close_stream(retry_ms=500)
    await asyncio.sleep(0.1)
    return "The result waited for the client to reconnect."


async def change_tools(context: Context) -> str:
    """Notifies clients that the list of tools has changed."""
    context.notify_changed("tools")
    return "Clients were notified that the list of tools has changed."


async def change_prompts(context: Context) -> str:
    """Notifies clients that the list of prompts has changed."""
    context.notify_changed("prompts")
    return "Clients were notified that the list of prompts has changed."


async def sampled(context: Context, prompt: str) -> str:
    """Asks the client's model."""
    sample = await context.sample("sample", prompt, max_tokens=100)
    return f"LLM response: {sample.text}"


async def elicited(context: Context, message: str) -> str:
    """Asks the user for a name and an address."""
    schema = {
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "The user's name"},
            "email": {"type": "string", "description": "The user's e-mail address"},
        },
        "required": ["username", "email"],
    }
    return _told("User response", await context.elicit("user", message, schema))


async def elicited_defaults(context: Context) -> str:
    """Asks with a form that has default values."""
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        },
    }
    return _told("Elicitation completed", await context.elicit("form", "Please check the form.", schema))


async def elicited_choices(context: Context) -> str:
    """Asks with every kind of choice in a form."""
    numbered = [f"option{number}" for number in (1, 2, 3)]
    titled = [{"const": f"value{number}", "title": f"Value {number}"} for number in (1, 2, 3)]
    schema = {
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": numbered},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option 1", "Option 2", "Option 3"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": numbered}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        },
    }
    return _told("Elicitation completed", await context.elicit("choices", "Please choose.", schema))


async def greeted(context: Context) -> str:
    """Asks for a name and greets."""
    answer = await context.elicit("user_name", "What is your name?", _one_text("name"))
    return f"Hello, {_content(answer)['name']}!"


async def capital(context: Context) -> str:
    """Asks the client's model for a capital."""
    return (await context.sample("capital_question", "What is the capital of France?", max_tokens=100)).text


async def rooted(context: Context) -> str:
    """Asks for the client's roots."""
    roots = await context.list_roots("client_roots")
    return "Roots: " + ", ".join(root.get("name") or root["uri"] for root in roots)


async def with_state(context: Context) -> str:
    """Remembers a step across a question."""
    step = await context.once("step", _step)
    await context.elicit("confirm", "Please confirm", {"type": "object", "properties": {"ok": {"type": "boolean"}}})
    return f"state-ok after {step}"


async def several(context: Context) -> str:
    """Asks three questions at once."""
    await context.once("step", _step)
    answers = await context.ask(
        {
            "user_name": {
                "method": "elicitation/create",
                "params": {"message": "What is your name?", "requestedSchema": _one_text("name")},
            },
            "greeting": {
                "method": "sampling/createMessage",
                "params": {
                    "messages": [{"role": "user", "content": {"type": "text", "text": "Generate a greeting"}}],
                    "maxTokens": 50,
                },
            },
            "client_roots": {"method": "roots/list", "params": {}},
        }
    )
    return f"All of {', '.join(answers)} were answered."


async def rounds(context: Context) -> str:
    """Asks twice, and uses the first answer in the second question."""
    await context.once("step", _step)
    name = _content(await context.elicit("step1", "What is your name?", _one_text("name")))["name"]
    colour = _content(await context.elicit("step2", f"What is your favourite colour, {name}?", _one_text("color")))
    return f"{name} likes {colour['color']}."


async def by_any_means(context: Context) -> str:
    """Asks the user, or the client's model if the client has no forms."""
    if "elicitation" in context.client_capabilities:
        return _told("User response", await context.elicit("user_name", "What is your name?", _one_text("name")))
    return (await context.sample("greeting", "Invent a name.", max_tokens=50)).text


async def prompted(context: Context) -> str:
    """Creates a prompt from the user's answer."""
    answer = await context.elicit("user_context", "What context should the prompt use?", _one_text("context"))
    return f"Work in this context: {_content(answer)['context']}"


async def slow_compute(context: Context, seconds: float, label: str = "") -> str:
    """Sleeps in small steps and reports progress."""
    steps = max(1, round(seconds / 0.1))
    for done in range(steps):
        await context.progress(done, steps, f"step {done} of {steps}")
        await asyncio.sleep(seconds / steps)
    return f"Slept for {seconds:g} s. {label}".strip()


async def protocol_error() -> str:
    """Raises a protocol error."""
    await asyncio.sleep(0.2)
    raise ProtocolError(1000, "The job cannot be run at all")


async def confirm_delete(context: Context, filename: str) -> str:
    """Asks whether to delete a file, but does not delete it."""
    answer = await context.elicit("confirm", f"Delete {filename}?", _YES_OR_NO)
    is_sure = answer.content is not None and answer.content["confirm"]
    return f"Deleted {filename}" if is_sure else f"Kept {filename}"


async def multi_input(context: Context) -> str:
    """Asks two questions at once."""
    name, confirmed = await asyncio.gather(
        context.elicit("name", "What is your name?", _one_text("name")),
        context.elicit("confirm", "Are you sure?", _YES_OR_NO),
    )
    return f"{_content(name)['name']} is sure: {_content(confirmed)['confirm']}"


async def greeted_by_task(context: Context) -> str:
    """Asks for a name before the task starts, then greets."""
    name = _content(await context.elicit("user_name", "What is your name?", _one_text("name")))["name"]
    await asyncio.sleep(1.5)
    return f"Hello, {name}!"


_YES_OR_NO = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}


async def _step() -> str:
    return "the first step"


def _one_text(name: str) -> dict[str, object]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


def _content(answer: Answer) -> Mapping[str, Any]:
    if answer.content is None:
        raise ToolError(f"The user did not answer: {answer.action}")
    return answer.content


def _told(what: str, answer: Answer) -> str:
    return f"{what}: action={answer.action}, content={json.dumps(answer.content)}"
