"""Functions behind `config/everything.yaml`: what a file alone cannot say."""

import asyncio

from gateway.plugin import Context


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


async def change_tools(context: Context) -> str:
    """Tells clients that the list of tools has changed."""
    context.notify_changed("tools")
    return "Clients were told that the list of tools has changed."


async def change_prompts(context: Context) -> str:
    """Tells clients that the list of prompts has changed."""
    context.notify_changed("prompts")
    return "Clients were told that the list of prompts has changed."
