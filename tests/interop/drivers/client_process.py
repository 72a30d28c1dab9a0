"""A long-lived client: it reads commands from standard input, one per line, and prints events to standard output.

Commands are `{"call": text}`, which prints `{"answer": text}`, and `{"end": true}`. It also prints `{"session": id}` at
the start and whenever the id changes, and `{"updated": uri}` and `{"changed": method}`.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Call = Callable[[str], Awaitable[str]]


async def read_command() -> Any:
    return json.loads(await asyncio.to_thread(sys.stdin.readline) or '{"end": true}')


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201 - the test reads it


async def execute_commands(call: Call, session_id: Callable[[], str | None]) -> None:
    """Execute commands until `end`."""
    known = session_id()
    say(session=known)
    while "end" not in (command := await read_command()):
        try:
            async with asyncio.timeout(20):
                say(answer=await call(command["call"]))
        except Exception as error:  # noqa: BLE001 - every error is reported to the test
            say(failed=repr(error))
        if session_id() != known:
            known = session_id()
            say(session=known)
