"""prompts/list and prompts/get (server/prompts)."""

from collections.abc import Sequence

from gateway.catalog.primitives import Prompt
from gateway.errors import ErrorCode, ExecutionError, OverLimitError, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol import revisions
from gateway.protocol.asking import open_asker
from gateway.protocol.methods import params
from gateway.protocol.request import RequestContext, Runtime
from gateway.protocol.running import check_access, check_client, counted, invocation
from gateway.protocol.unknown import unknown_prompt


async def list_prompts(request: RequestContext, runtime: Runtime) -> bytes:
    return runtime.pages.page(
        "prompts", catalog=request.catalog, revision=request.revision, cursor=request.params.get("cursor")
    )


async def get_prompt(request: RequestContext, runtime: Runtime) -> JsonObject:
    name = params.string(request.params, "name")
    given = params.strings(request.params, "arguments")
    prompt = request.catalog.prompt(name)
    if prompt is None:
        raise unknown_prompt(name, request, runtime)
    check_access(prompt, request)
    check_client(prompt, request)
    arguments = _complete_arguments(prompt, given)
    try:
        with counted(prompt, request, runtime):
            messages = await _rendered(prompt, arguments, request, runtime)
    except OverLimitError:
        raise
    except ExecutionError as error:
        raise RpcError(ErrorCode.INTERNAL_ERROR, request.catalog.redactor.text(str(error))) from error
    result: dict[str, Json] = {"messages": revisions.prompt_messages(messages, request.revision)}
    if "description" in prompt.definition:
        result["description"] = prompt.definition["description"]
    return result


async def _rendered(
    prompt: Prompt, arguments: JsonObject, request: RequestContext, runtime: Runtime
) -> Sequence[JsonObject]:
    async with (
        open_asker(prompt, request, runtime, method="prompts/get") as asker,
        invocation("prompts/get", prompt, arguments, request, runtime, asker=asker) as call,
    ):
        return await prompt.messages.render(call)


def _complete_arguments(prompt: Prompt, given: dict[str, str]) -> dict[str, str]:
    """`given` with defaults.

    Raises:
        RpcError: -32602, a required argument is missing, or one is not an argument of this prompt.
    """
    known = {argument.name for argument in prompt.arguments}
    missing = [argument.name for argument in prompt.arguments if argument.required and argument.name not in given]
    if missing or not given.keys() <= known:
        unknown = sorted(given.keys() - known)
        what = f"missing: {', '.join(missing)}" if missing else f"unknown: {', '.join(unknown)}"
        raise RpcError(ErrorCode.INVALID_PARAMS, f"Arguments of prompt {prompt.name}: {what}")
    defaults = {argument.name: argument.default for argument in prompt.arguments if argument.default is not None}
    return {**defaults, **given}
