"""A slow report: a task that reports progress and asks a question."""

import asyncio

from gateway.plugin import Context


async def write(context: Context, topic: str, pause: float = 0.1) -> str:
    """Write a report on a topic: gather, ask for the length, and write."""
    for done, step in enumerate(("reading sources", "comparing them")):
        await context.progress(done, 3, step)
        await asyncio.sleep(pause)
    length = "short"
    if "elicitation" in context.client_capabilities:
        schema = {"type": "object", "properties": {"length": {"type": "string", "enum": ["short", "long"]}}}
        answer = await context.elicit("length", f"How long should the report on {topic} be?", schema)
        length = (answer.content or {}).get("length", length)
    await context.progress(2, 3, "writing")
    await asyncio.sleep(pause)
    return f"A {length} report on {topic}."
