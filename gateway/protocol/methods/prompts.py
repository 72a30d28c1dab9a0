"""prompts/get (server/prompts)."""

from gateway.catalog.primitives import Prompt
from gateway.errors import ErrorCode, ExecutionError, OverLimitError, RpcError
from gateway.executors.invocation import Relayed
from gateway.json_types import Json, JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.not_found import unknown_prompt
from gateway.protocol.call.runner import Run, check_access, check_client
from gateway.protocol.methods import params
from gateway.wire import downgrade, meta


async def get_prompt(call: Call) -> JsonObject:
    name = params.string(call.params, "name")
    given = params.strings(call.params, "arguments")
    prompt = call.catalog.prompt(name)
    if prompt is None:
        raise unknown_prompt(name, call)
    check_access(prompt, call)
    check_client(prompt, call)
    arguments = _complete_arguments(prompt, given)
    try:
        async with Run(call, prompt) as run:
            rendered = await prompt.messages.render(await run.start(arguments))
    # An `ExecutionError`, too, but answered by `Method.refused`.
    except OverLimitError:
        raise
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
    """`given` with defaults.

    Raises:
        RpcError: -32602, a required argument is missing, or one is not an argument of this prompt.
    """
    arguments = prompt.arguments
    missing = [name for name, argument in arguments.items() if argument.required and name not in given]
    # An upstream may take more than it lists.
    unknown = [] if prompt.upstream else sorted(given.keys() - arguments.keys())
    if missing or unknown:
        what = f"missing: {', '.join(missing)}" if missing else f"unknown: {', '.join(unknown)}"
        raise RpcError(ErrorCode.INVALID_PARAMS, f"Arguments of prompt {prompt.name}: {what}")
    defaults = {name: argument.default for name, argument in arguments.items() if argument.default is not None}
    return {**defaults, **given}
