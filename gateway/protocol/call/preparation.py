"""Prepares the arguments of a tool's call: on the event loop, or in a worker thread where large files are decoded.

It comes before the run, whose permit and rate limit a call with wrong arguments does not use up.
"""

import asyncio
from functools import partial
from typing import Final

from gateway.catalog.primitives import Tool
from gateway.errors import DeadlineExceededError, ExecutionError
from gateway.executors.threads import MAX_ON_LOOP, NoThreadFreeError
from gateway.json_types import JsonObject
from gateway.protocol.call.call import Call

_WHAT: Final = "Decoding the files"


async def prepared_arguments(tool: Tool, arguments: JsonObject, call: Call) -> JsonObject:
    """Return the arguments that a run begins with. See `ArgumentsSchema.prepare`.

    Raises:
        ExecutionError: they do not fit; or their files were not decoded within the tool's timeout.
    """
    if tool.arguments.size_of_files(arguments) <= MAX_ON_LOOP:
        return tool.arguments.prepare(arguments)
    seconds = tool.timeout.total_seconds()
    threads = call.server.services.worker_threads
    try:
        deadline = asyncio.get_running_loop().time() + seconds
        return await threads.run(partial(tool.arguments.prepare, arguments), deadline=deadline)
    except NoThreadFreeError as error:
        raise ExecutionError(f"{_WHAT} did not begin: all threads were busy for {seconds:g} s") from error
    except TimeoutError as error:
        raise DeadlineExceededError(_WHAT, seconds) from error
