import asyncio
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from gateway.cli.client.answers import Answers, add_answers, with_capabilities
from gateway.cli.client.remote import GatewayClient, every_page
from gateway.cli.client.requests import open_client, with_files
from gateway.cli.console import Console, say
from gateway.cli.explain import show_explanation
from gateway.cli.options import add_request
from gateway.cli.parser import CONFIG_AS_FIRST_WORD, EXIT_CODES, Parser
from gateway.cli.results import pieces_of, save, show_raw, show_tool_result
from gateway.cli.user_input import arguments_of, name_and_pairs, split_config
from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.errors import ErrorCode, ExecutionError, RpcError
from gateway.json_types import Json, JsonObject

_WITH_LOG_MESSAGES: Final[JsonObject] = {"io.modelcontextprotocol/logLevel": "info"}
"""Request metadata that asks for log messages of level `info` and above (MCP 2026-07-28)."""
_TASKS: Final = "io.modelcontextprotocol/tasks"
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Maximum seconds between two polls of a task."""


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
  {name} config.yaml delete_file path=old.txt --yes

arguments:
  key=text     text; JSON if the input is a number, a boolean or a list
  key:=json    any JSON value
  key@=file    the content of a text file; - is standard input
  key=@file    a file, if the input is a file; several: files=@a.pdf files=@b.pdf

Progress is shown on standard error. On a terminal, the command prompts for input that the tool
requests: Enter accepts the default, Ctrl-D declines. In scripts, use --yes and --answer. The exit
code is 1 if you decline.

{CONFIG_AS_FIRST_WORD}

{EXIT_CODES}""",
    )
    arguments.add_argument("words", nargs="+", metavar="TOOL", help="the tool and its arguments")
    arguments.add_argument("--json", metavar="OBJECT", help="the arguments as a JSON object")
    add_answers(arguments)
    add_request(arguments, explains="the command, request or function without running it")
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    config, words = split_config(options.words, url=options.url, needs_name=True)
    name, *pairs = name_and_pairs(words, "TOOL")
    params = {"name": name, "arguments": arguments_of(pairs, json=options.json), "_meta": _WITH_LOG_MESSAGES}
    if options.explain:
        return await show_explanation(options, config, "tools/call", params, out, hints)
    answers = Answers(options, hints)
    async with open_client(options, config, hints, about=name) as client:
        given = await with_files(client, params)
        try:
            result = await _result_of(client, given, answers)
        except RpcError as error:
            guess = ""
            if error.message == f"Unknown tool: {name}":
                tools = await every_page(client, "tools/list", "tools")
                guess = did_you_mean(name, [tool["name"] for tool in tools])
            raise answers.explained(RpcError(error.code, error.message + guess, error.data)) from error
    failed = result.get("isError") is True
    if options.raw:
        show_raw(result, out)
    elif failed:
        show_tool_result(result, out=hints, hints=hints)
    elif options.output is not None:
        save(pieces_of(result["content"]), options.output, hints=hints)
    else:
        show_tool_result(result, out=out, hints=hints)
    return 1 if failed or answers.was_declined else 0


async def _result_of(client: GatewayClient, params: JsonObject, answers: Answers) -> JsonObject:
    """Call the tool, answer its input requests, and poll the task if the server creates one.

    Raises:
        RpcError: the response is an error, an input request has no answer, or the task failed or was cancelled.
    """
    try:
        # Try without a task first, because an immediate result needs no polling.
        return await _tool_result(client, params, answers, answers.capabilities)
    except RpcError as error:
        if not _requires_task(error):
            raise
    capabilities = {**answers.capabilities, "extensions": {_TASKS: {}}}
    result = await _tool_result(client, params, answers, capabilities)
    if result.get("resultType") != "task":
        return result
    named = with_capabilities({"taskId": result["taskId"]}, capabilities)
    try:
        return await _task_result(client, named, answers)
    except BaseException:  # interrupted, or an input request cannot be answered
        # A failed cancellation must not hide the original error.
        with suppress(RpcError, ExecutionError):
            await client.request("tasks/cancel", named)
        raise


async def _tool_result(
    client: GatewayClient, params: JsonObject, answers: Answers, capabilities: JsonObject
) -> JsonObject:
    params = given = with_capabilities(params, capabilities)
    while True:
        result = await client.request("tools/call", given, on_notification=partial(_show, answers.hints))
        if result.get("resultType") != "input_required":
            return result
        requests, state = result.get("inputRequests") or {}, result.get("requestState")
        given = {
            **params,
            **({"inputResponses": answers.answer_all(requests)} if requests else {}),
            **({"requestState": state} if state is not None else {}),
        }
        if not requests:
            await asyncio.sleep(_LONGEST_PAUSE)


async def _task_result(client: GatewayClient, named: JsonObject, answers: Answers) -> JsonObject:
    message, pause = None, _FIRST_PAUSE
    while True:
        task = await client.request("tasks/get", named)
        match task["status"]:
            case "completed":
                result: JsonObject = task["result"]
                return result
            case "failed":
                error: Json = task["error"]
                raise RpcError(error["code"], error["message"], error.get("data"))
            case "input_required":
                responses = answers.answer_all(task["inputRequests"])
                await client.request("tasks/update", {**named, "inputResponses": responses})
            case "working":
                if task.get("statusMessage") not in {None, message}:
                    message = task["statusMessage"]
                    answers.hints.foreign(str(message))
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            case status:
                raise RpcError(ErrorCode.INVALID_REQUEST, f"The task is {status}")


async def _show(hints: Console, notification: JsonObject) -> None:
    match notification:
        case {"method": "notifications/progress", "params": {"progress": progress, **rest}}:
            total = f"/{rest['total']:.15g}" if "total" in rest else ""
            hints.foreign(f"[{progress:.15g}{total}] {rest.get('message', '')}".rstrip())
        case {"method": "notifications/message", "params": {"level": level, "data": data}}:
            hints.foreign(f"{level}: {say(data)}")


def _requires_task(error: RpcError) -> bool:
    required = error.data.get("requiredCapabilities") if isinstance(error.data, Mapping) else None
    extensions = required.get("extensions") if isinstance(required, Mapping) else None
    return error.code == ErrorCode.MISSING_CLIENT_CAPABILITY and _TASKS in (extensions or {})
