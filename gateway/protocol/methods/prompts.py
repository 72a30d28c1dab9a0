"""Implements prompts/get (server/prompts) and completion/complete (server/utilities/completion)."""

from collections.abc import Mapping
from typing import Final

from gateway.catalog.primitives import Completer, Prompt, Suggestions
from gateway.errors import ErrorCode, ExecutionError, OverLimitError, RpcError
from gateway.executors.invocation import Relayed
from gateway.json_types import Json, JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.run import Run, check_access, check_client
from gateway.wire import downgrade, jsonrpc, meta


async def get_prompt(call: Call) -> JsonObject:
    name = jsonrpc.string_param(call.params, "name")
    given = jsonrpc.strings_param(call.params, "arguments")
    prompt = call.catalog.prompt(name)
    if prompt is None:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"Unknown prompt: {name}")
    check_access(prompt, call)
    check_client(prompt, call)
    arguments = _complete_arguments(prompt, given)
    try:
        async with Run(call, prompt) as run:
            invocation = await run.start(arguments)
            rendered = await prompt.messages(await prompt.executor.execute(invocation), invocation)
    except OverLimitError:
        raise  # see `Method.refused`
    except ExecutionError as error:
        raise RpcError(ErrorCode.INTERNAL_ERROR, call.catalog.sanitizer.text(str(error))) from error
    result: dict[str, Json] = {"messages": downgrade.prompt_messages(rendered.content, call.revision)}
    definition = prompt.definition
    description = rendered.description if isinstance(rendered, Relayed) else definition.get("description")
    if description is not None:
        result["description"] = description
    if isinstance(rendered, Relayed) and rendered.meta:
        result[meta.META] = dict(rendered.meta)
    return result


def _complete_arguments(prompt: Prompt, given: dict[str, str]) -> dict[str, str]:
    arguments = prompt.arguments
    missing = [name for name, argument in arguments.items() if argument.required and name not in given]
    # Upstream servers may accept arguments that they do not list.
    unknown = [] if prompt.upstream else sorted(given.keys() - arguments.keys())
    if missing or unknown:
        what, names = ("is missing required arguments", missing) if missing else ("has no arguments named", unknown)
        raise RpcError(ErrorCode.INVALID_PARAMS, f"Prompt `{prompt.name}` {what}: {', '.join(names)}")
    defaults = {name: argument.default for name, argument in arguments.items() if argument.default is not None}
    return {**defaults, **given}


MAX_VALUES: Final = 100


async def complete(call: Call) -> JsonObject:
    argument = jsonrpc.object_param(call.params, "argument")
    name, value = jsonrpc.string_param(argument, "name"), jsonrpc.string_param(argument, "value")
    others = jsonrpc.strings_param(jsonrpc.object_param(call.params, "context"), "arguments")
    reference = jsonrpc.object_param(call.params, "ref")
    primitive = call.target
    if primitive is None:
        raise _unknown(reference)
    check_access(primitive, call)
    # Resources have no completers, unlike prompts and resource templates.
    completers: Mapping[str, Completer] = getattr(primitive, "completers", {})
    completer = completers.get(name)
    if completer is None:
        return _completion(Suggestions(values=(), total=0))
    try:
        async with Run(call, primitive, is_completion=True) as run:
            found = await completer(value, others, await run.start(others))
            shown = [call.catalog.sanitizer.text(candidate) for candidate in found.values[:MAX_VALUES]]
            has_more = found.has_more or len(found.values) > len(shown)
            others_meta = call.catalog.sanitizer.json(found.meta)
            return _completion(Suggestions(values=shown, total=found.total, has_more=has_more, meta=others_meta))
    except OverLimitError:
        raise
    except ExecutionError as error:
        raise RpcError(ErrorCode.INTERNAL_ERROR, call.catalog.sanitizer.text(str(error))) from error


def _unknown(reference: JsonObject) -> RpcError:
    match reference.get("type"):
        case "ref/prompt":
            return RpcError(ErrorCode.INVALID_PARAMS, f"Unknown prompt: {jsonrpc.string_param(reference, 'name')}")
        case "ref/resource":
            uri = jsonrpc.string_param(reference, "uri")
            return RpcError(ErrorCode.INVALID_PARAMS, f"Unknown resource: {uri}", {"uri": uri})
    return RpcError(ErrorCode.INVALID_PARAMS, "`ref.type` must be ref/prompt or ref/resource")


def _completion(suggestions: Suggestions) -> JsonObject:
    completion: dict[str, Json] = {"values": suggestions.values, "hasMore": suggestions.has_more}
    if suggestions.total is not None:
        completion["total"] = suggestions.total
    return {"completion": completion, **({meta.META: suggestions.meta} if suggestions.meta else {})}
