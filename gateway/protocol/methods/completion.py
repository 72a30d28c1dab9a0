"""completion/complete (server/utilities/completion)."""

from collections.abc import Mapping
from typing import Final

from gateway.catalog.primitives import Completer, Primitive
from gateway.errors import ErrorCode, ExecutionError, OverLimitError, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol.methods import params
from gateway.protocol.request import RequestContext, Runtime
from gateway.protocol.running import check_access, invocation
from gateway.protocol.unknown import unknown_prompt

MOST_VALUES: Final = 100
"""The schema's limit for `completion.values`."""


async def complete(request: RequestContext, runtime: Runtime) -> JsonObject:
    """Suggest values for an argument of a prompt, or a variable of a resource template. No source: no values."""
    argument = params.mapping(request.params, "argument")
    name, value = params.string(argument, "name"), params.string(argument, "value")
    others = params.strings(params.mapping(request.params, "context"), "arguments")
    primitive, completers = _referenced(params.mapping(request.params, "ref"), request, runtime)
    check_access(primitive, request)
    completer = completers.get(name)
    if completer is None:
        return _completion([])
    try:
        async with invocation("completion/complete", primitive, others, request, runtime, asker=None) as call:
            found = await completer.complete(value, others, call)
            return _completion([request.catalog.redactor.text(candidate) for candidate in found])
    except OverLimitError:
        raise
    except ExecutionError as error:
        raise RpcError(ErrorCode.INTERNAL_ERROR, request.catalog.redactor.text(str(error))) from error


def _referenced(
    reference: JsonObject, request: RequestContext, runtime: Runtime
) -> tuple[Primitive, Mapping[str, Completer]]:
    kind = reference.get("type")
    if kind == "ref/prompt":
        name = params.string(reference, "name")
        if (prompt := request.catalog.prompt(name)) is not None:
            return prompt, prompt.completers
        raise unknown_prompt(name, request, runtime)
    if kind == "ref/resource":
        return _referenced_resource(params.string(reference, "uri"), request)
    raise RpcError(ErrorCode.INVALID_PARAMS, "`ref.type` must be ref/prompt or ref/resource")


def _referenced_resource(uri: str, request: RequestContext) -> tuple[Primitive, Mapping[str, Completer]]:
    """The reference is a template as it is listed, or a URI that something serves."""
    for template in request.catalog.resource_templates:
        if template.uri_template == uri:
            return template, template.completers
    if (found := request.catalog.resource(uri)) is not None:
        return found[0], getattr(found[0], "completers", {})
    raise RpcError(ErrorCode.INVALID_PARAMS, f"Unknown resource: {uri}", {"uri": uri})


def _completion(values: list[str]) -> JsonObject:
    completion: dict[str, Json] = {
        "values": values[:MOST_VALUES],
        "total": len(values),
        "hasMore": len(values) > MOST_VALUES,
    }
    return {"completion": completion}
