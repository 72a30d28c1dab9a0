"""A countdown: an async function with progress and log messages."""

import asyncio

from gateway.plugin import Context, ToolError


async def count_down(context: Context, start: int = 3, pause: float = 0.2) -> str:
    """Count down to zero, one step after each pause, and report the progress.

    Args:
        context: Sends the progress and log messages.
        start: The first number, from 1 to 100.
        pause: Seconds between two steps, up to 10.
    """
    if not 1 <= start <= 100:
        raise ToolError("start must be between 1 and 100")
    if not 0 <= pause <= 10:
        raise ToolError("pause must be between 0 and 10 seconds")
    await context.log("info", {"counting down from": start})
    for done in range(start):
        await context.progress(done, start, f"{start - done} …")
        await asyncio.sleep(pause)
    await context.progress(start, start, "0")
    return "Lift-off."
