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
    """Catches all that a question can raise, and says that it is done."""
    try:
        await context.elicit("name", "Who?", NAME)
    except {"Exception": Exception, "BaseException": BaseException}[what]:
        return "went on without an answer"
    return "answered"


def catches_in_a_thread(context: SyncContext) -> str:
    """The same in a thread."""
    try:
        context.elicit("name", "Who?", NAME)
    except:  # noqa: E722 - the mistake
        return "went on without an answer"
    return "answered"


async def turns_into_an_error(context: Context) -> str:
    """Raises something else instead."""
    try:
        await context.elicit("name", "Who?", NAME)
    except BaseException as error:
        raise ToolError("could not ask") from error
    return "answered"


async def together(context: Context) -> str:
    """Asks beside each other, which is none."""
    answers = await asyncio.gather(context.elicit("first", "First?", NAME), context.elicit("second", "Second?", NAME))
    return " ".join(answer.action for answer in answers)


async def in_a_group(context: Context) -> str:
    """The same in a task group."""
    async with asyncio.TaskGroup() as group:
        first = group.create_task(context.elicit("first", "First?", NAME))
        second = group.create_task(context.elicit("second", "Second?", NAME))
    return f"{first.result().action} {second.result().action}"


def in_threads(context: SyncContext) -> str:
    """The same from threads of its own."""
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
    """Uses a key for two questions."""
    one = await context.elicit("key", "Who?", NAME)
    two = await context.elicit("key", "Who?", NAME)
    await context.elicit("key", "Where?", NAME)
    return f"{one} {two}"


async def reserved(context: Context) -> str:
    """Uses the gateway's key."""
    return (await context.elicit("mcp-gateway.confirm", "Really?", {"type": "object", "properties": {}})).action


async def leaves_one_open(context: Context) -> str:
    """Answers while its question is open."""
    LEFT_BEHIND.append(asyncio.create_task(context.elicit("name", "Who?", NAME)))
    await asyncio.sleep(0.05)
    context.progress(1)
    return "done without it"


async def asks_too_late(context: Context) -> str:
    """Asks after it has answered."""

    async def later() -> str:
        await GO.wait()
        try:
            return (await context.elicit("name", "Who?", NAME)).action
        except ToolError as error:
            return str(error)

    LEFT_BEHIND.append(asyncio.create_task(later()))
    return "done"


async def what_became_of_it() -> str:
    """Says how the task that a call left behind has ended."""
    GO.set()
    task = LEFT_BEHIND.pop()
    await asyncio.wait([task])
    GO.clear()
    return "cancelled" if task.cancelled() else str(task.result())


async def long_winded(context: Context, size: int) -> str:
    """Has much to carry on."""

    async def much() -> str:
        return "x" * size

    await context.once("much", much)
    return (await context.elicit("name", "Who?", NAME)).action


async def keeps(context: Context, what: str) -> str:
    """Keeps what cannot be kept."""

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
    """Asks with a secret in the question."""
    return (await context.elicit("name", "Is it hunter2-hunter2?", NAME)).action


async def malformed(context: Context) -> str:
    """Asks what cannot be answered."""
    return (await context.elicit("name", "Who?", {"type": "object", "properties": {"deep": {"type": "object"}}})).action
