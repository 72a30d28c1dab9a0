"""The command `call`: one tool call, in this process or to a running server."""

import asyncio
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from gateway.cli.client.client import GatewayClient, Listener, RemoteError
from gateway.cli.client.file_arguments import with_files
from gateway.cli.client.open_client import open_client
from gateway.cli.console import Console, say, waiting
from gateway.cli.explain import show_explanation
from gateway.cli.options import add_explain, add_output, add_url
from gateway.cli.parser import CONFIG_AS_FIRST_WORD, EXIT_CODES, Parser
from gateway.cli.positional import arguments_of, name_and_pairs, split_config
from gateway.cli.results import pieces_of, save, show_raw, show_tool_result
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject

_WITH_LOG_MESSAGES: Final[JsonObject] = {"io.modelcontextprotocol/logLevel": "info"}
"""MCP 2026-07-28: a request that names a level is sent log messages from that level on."""
_TASKS: Final = "io.modelcontextprotocol/tasks"
_KNOWS_TASKS: Final[JsonObject] = {
    "_meta": {"io.modelcontextprotocol/clientCapabilities": {"extensions": {_TASKS: {}}}},
}
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds between questions for the status of a task: somebody sits before the screen."""


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        words="[CONFIG] TOOL [key=value …]",
        summary="Call a tool, from the file in this process or on a running server.",
        epilog=f"""\
examples:
  {name} config.yaml disk_usage path=/srv depth=2
  {name} config.yaml search --json '{{"text": "needle", "paths": ["a", "b"]}}'
  {name} config.yaml annotate 'labels:=["x", "y"]' text@=notes.txt
  {name} --url http://127.0.0.1:8000 disk_usage path=/srv
  {name} config.yaml describe_photo photo=@garden.jpg
  {name} config.yaml chart -o chart.png
  {name} config.yaml disk_usage path=/srv --explain

arguments:
  key=text     the text; where the tool wants a number, a boolean or a list, its JSON
  key:=json    any JSON value
  key@=file    the content of a text file; - is standard input
  key=@file    a file, where the tool's input is one; several: files=@a.pdf files=@b.pdf

Progress is shown on standard error.

{CONFIG_AS_FIRST_WORD}

{EXIT_CODES}""",
    )
    arguments.add_argument("words", nargs="+", metavar="TOOL", help="what to call, and with what")
    arguments.add_argument("--json", metavar="OBJECT", default=None, help="the arguments as a JSON object")
    add_explain(arguments, "the command, request or function without running it")
    add_output(arguments)
    add_url(arguments)
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    config, words = split_config(options.words, url=options.url, needs_name=True)
    name, *pairs = name_and_pairs(words, "TOOL")
    params = {"name": name, "arguments": arguments_of(pairs, json=options.json), "_meta": _WITH_LOG_MESSAGES}
    if options.explain:
        return await show_explanation(options, config, "tools/call", params, out, hints)

    async def show(notification: JsonObject) -> None:
        _show_notification(notification, hints)

    async with open_client(options, config, hints, about=name) as client:
        with_content = await with_files(client, params)
        with waiting(hints, f"Calling {name}"):
            result = await _call_tool(client, with_content, show=show, hints=hints)
    failed = result.get("isError") is True
    if options.raw:
        show_raw(result, out)
    elif failed:
        show_tool_result(result, out=hints, hints=hints)
    elif options.output is not None:
        save(pieces_of(result["content"]), options.output, hints=hints)
    else:
        show_tool_result(result, out=out, hints=hints)
    return 1 if failed else 0


async def _call_tool(client: GatewayClient, params: JsonObject, *, show: Listener, hints: Console) -> JsonObject:
    """The result of a call, as a task where the tool is called in no other way.

    Raises:
        RpcError: the answer is an error, or the task has failed, was cancelled, or asks something.
    """
    try:
        # Not as a task at first: where both are possible, the result itself is wanted.
        return await client.request("tools/call", params, on_notification=show)
    except RpcError as error:
        if not _is_for_tasks_alone(error):
            raise
    result = await client.request("tools/call", {**params, **_KNOWS_TASKS})
    if result.get("resultType") != "task":
        return result
    named = {"taskId": result["taskId"], **_KNOWS_TASKS}
    try:
        return await _task_result(client, named, hints)
    except BaseException:  # the user has had enough, or nobody can answer what it asks
        # What keeps it from being cancelled is not what ended the call.
        with suppress(RpcError, RemoteError):
            await client.request("tasks/cancel", named)
        raise


def _is_for_tasks_alone(error: RpcError) -> bool:
    required = error.data.get("requiredCapabilities") if isinstance(error.data, Mapping) else None
    extensions = required.get("extensions") if isinstance(required, Mapping) else None
    return error.code == ErrorCode.MISSING_CLIENT_CAPABILITY and _TASKS in (extensions or {})


async def _task_result(client: GatewayClient, named: JsonObject, hints: Console) -> JsonObject:
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


def _show_notification(message: JsonObject, hints: Console) -> None:
    match message:
        case {"method": "notifications/progress", "params": {"progress": progress, **rest}}:
            total = f"/{rest['total']:.15g}" if "total" in rest else ""
            hints.foreign(f"[{progress:.15g}{total}] {rest.get('message', '')}".rstrip())
        case {"method": "notifications/message", "params": {"level": level, "data": data}}:
            hints.foreign(f"{level}: {say(data)}")
