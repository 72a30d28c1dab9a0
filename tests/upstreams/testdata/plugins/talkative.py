"""Tools of an upstream for tests: progress, questions, waiting, and all kinds of content."""

import asyncio
from pathlib import Path
from typing import Any

from gateway.plugin import Context, Image, ResourceLink, Text

BEGUN: list[str] = []


def add(a: int, b: int) -> dict[str, int]:
    return {"sum": a + b}


def picture() -> list[Any]:
    link = ResourceLink(uri="note://one", name="note")
    return [Text("see"), Image(b"\x89PNG", "image/png"), link]


async def count(to: int, context: Context) -> str:
    for number in range(1, to + 1):
        await context.progress(number, to, f"step {number}")
        await context.log("warning", {"number": number}, "counter")
    return f"counted to {to}"


async def ask_name(context: Context, mark: str = "") -> str:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    BEGUN.append("ask_name")
    try:
        answer = await context.elicit("name", "Who are you?", schema)
    except asyncio.CancelledError:
        if mark:
            Path(mark).write_text("cancelled", encoding="utf-8")
        raise
    return f"hello {answer.content['name']}" if answer.content else f"no name: {answer.action}"


async def ask_model(context: Context) -> str:
    return (await context.sample("model", "Say something.")).text


async def ask_roots(context: Context) -> str:
    return ", ".join(str(root["uri"]) for root in await context.list_roots("roots"))


def times_asked() -> str:
    return str(len(BEGUN))


async def wait(mark: str) -> str:
    path = Path(mark)
    path.write_text("began", encoding="utf-8")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        path.write_text("cancelled", encoding="utf-8")
        raise
    return "done"


async def touch(uri: str, context: Context) -> str:
    context.resource_updated(uri)
    return "touched"
