"""Calls of tools that must become tasks: makes one, shows how far it is, and waits for its result."""

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.cli.client.client import Client, Listener
from gateway.cli.console import Console
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject

_TASKS: Final = "io.modelcontextprotocol/tasks"
_KNOWS_TASKS: Final[JsonObject] = {
    "_meta": {"io.modelcontextprotocol/clientCapabilities": {"extensions": {_TASKS: {}}}},
}
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds between questions for its status: somebody sits before the screen."""


async def call_tool(client: Client, params: JsonObject, *, show: Listener, hints: Console) -> JsonObject:
    """The result of a call, as a task where the tool is called in no other way.

    Raises:
        RpcError: the answer is an error, or the task has failed, was cancelled, or asks something.
    """
    try:
        return await client.request("tools/call", params, on_notification=show)
    except RpcError as error:
        if not _is_for_tasks_alone(error):
            raise
    result = await client.request("tools/call", {**params, **_KNOWS_TASKS})
    if result.get("resultType") != "task":
        return result
    named = {"taskId": result["taskId"], **_KNOWS_TASKS}
    try:
        return await _result_of(client, named, hints)
    except BaseException:  # the user has had enough, or nobody can answer what it asks
        await asyncio.shield(client.request("tasks/cancel", named))
        raise


def _is_for_tasks_alone(error: RpcError) -> bool:
    required = error.data.get("requiredCapabilities") if isinstance(error.data, Mapping) else None
    extensions = required.get("extensions") if isinstance(required, Mapping) else None
    return error.code == ErrorCode.MISSING_CLIENT_CAPABILITY and _TASKS in (extensions or {})


async def _result_of(client: Client, named: JsonObject, hints: Console) -> JsonObject:
    message, pause = None, _FIRST_PAUSE
    while True:
        task = await client.request("tasks/get", named)
        status = task["status"]
        if status == "completed":
            result: JsonObject = task["result"]
            return result
        if status == "failed":
            error: Json = task["error"]
            raise RpcError(error["code"], error["message"], error.get("data"))
        if status != "working":
            why = "asks, and there is nobody to answer" if status == "input_required" else f"is {status}"
            raise RpcError(ErrorCode.INVALID_REQUEST, f"The task {why}")
        if task.get("statusMessage") not in {None, message}:
            message = task["statusMessage"]
            hints.foreign(str(message))
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
