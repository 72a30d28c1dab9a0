"""Plugin functions with mistakes in their questions."""

import asyncio
import math
import threading
from typing import Any

from gateway.plugin import Context, SyncContext, ToolError

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
LEFT_BEHIND: list[asyncio.Task[Any]] = []
GO = asyncio.Event()


async def catches(context: Context, what: str) -> str:
    """Catch every exception of a question, and return a result."""
    try:
        await context.elicit("name", "Who?", NAME)
    except {"Exception": Exception, "BaseException": BaseException}[what]:
        return "went on without an answer"
    return "answered"


def catches_in_a_thread(context: SyncContext) -> str:
    """Do the same in a thread."""
    try:
        context.elicit("name", "Who?", NAME)
    except:  # noqa: E722 - the mistake
        return "went on without an answer"
    return "answered"


async def turns_into_an_error(context: Context) -> str:
    """Raise a different exception instead."""
    try:
        await context.elicit("name", "Who?", NAME)
    except BaseException as error:
        raise ToolError("could not ask") from error
    return "answered"


async def together(context: Context) -> str:
    """Ask concurrently with `gather`."""
    answers = await asyncio.gather(context.elicit("first", "First?", NAME), context.elicit("second", "Second?", NAME))
    return " ".join(answer.action for answer in answers)


async def in_a_group(context: Context) -> str:
    """Ask concurrently in a task group."""
    async with asyncio.TaskGroup() as group:
        first = group.create_task(context.elicit("first", "First?", NAME))
        second = group.create_task(context.elicit("second", "Second?", NAME))
    return f"{first.result().action} {second.result().action}"


def in_threads(context: SyncContext) -> str:
    """Ask concurrently in separate threads."""
    found: dict[str, Any] = {}

    def ask(key: str) -> None:
        try:
            found[key] = context.elicit(key, key, NAME).action
        except BaseException as error:  # noqa: BLE001 - the mistake
            found[key] = error

    threads = [threading.Thread(target=ask, args=[key]) for key in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"{found['first']} {found['second']}"


async def same_key(context: Context) -> str:
    """Use a key for two questions."""
    one = await context.elicit("key", "Who?", NAME)
    two = await context.elicit("key", "Who?", NAME)
    await context.elicit("key", "Where?", NAME)
    return f"{one} {two}"


async def reserved(context: Context) -> str:
    """Use a reserved key."""
    return (await context.elicit("mcp-gateway.confirm", "Really?", {"type": "object", "properties": {}})).action


async def leaves_one_open(context: Context) -> str:
    """Return while a question is open."""
    LEFT_BEHIND.append(asyncio.create_task(context.elicit("name", "Who?", NAME)))
    await asyncio.sleep(0.05)
    context.progress(1)
    return "done without it"


async def asks_too_late(context: Context) -> str:
    """Ask after returning."""

    async def later() -> str:
        await GO.wait()
        try:
            return (await context.elicit("name", "Who?", NAME)).action
        except ToolError as error:
            return str(error)

    LEFT_BEHIND.append(asyncio.create_task(later()))
    return "done"


async def what_became_of_it() -> str:
    """Return the outcome of the task that a call left behind."""
    GO.set()
    task = LEFT_BEHIND.pop()
    await asyncio.wait([task])
    GO.clear()
    return "cancelled" if task.cancelled() else str(task.result())


async def long_winded(context: Context, size: int) -> str:
    """Keep a large value across a question."""

    async def much() -> str:
        return "x" * size

    await context.once("much", much)
    return (await context.elicit("name", "Who?", NAME)).action


async def keeps(context: Context, what: str) -> str:
    """Keep a value that cannot be kept across a question."""

    async def kept() -> object:
        return {
            "secret": "token hunter2-hunter2",
            "object": object(),
            "tuple": (1, 2),
            "nan": {"a": [math.nan]},
            "large": 2**70,
        }[what]

    return str(await context.once("kept", kept))


async def says_the_secret(context: Context) -> str:
    """Ask a question that contains a secret."""
    return (await context.elicit("name", "Is it hunter2-hunter2?", NAME)).action


async def malformed(context: Context) -> str:
    """Ask a malformed question."""
    return (await context.elicit("name", "Who?", {"type": "object", "properties": {"deep": {"type": "object"}}})).action
