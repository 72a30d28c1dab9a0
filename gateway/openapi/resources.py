"""Makes the definition of a resource template, or resource, of one operation: data as it could stand in the file."""

import re
from typing import Final

from gateway.config.models.overrides import OperationOverride
from gateway.json_types import Json
from gateway.openapi.document import DocumentError
from gateway.openapi.inputs import Input
from gateway.openapi.operations import Operation
from gateway.openapi.responses import response_of
from gateway.openapi.tools import Call, Reader, call_of, description_of, http_of

_IN_PATH: Final = re.compile(r"\{([^{}]+)\}")


def resource_of(operation: Operation, reader: Reader, override: OperationOverride, *, scheme: str) -> dict[str, Json]:
    """The resource template, or resource, of an operation.

    Raises:
        DocumentError: there is none; the text says why.
    """
    call = call_of(operation, reader, override)
    if operation.method != "get":
        raise DocumentError("a resource is read, which takes GET")
    for each in call.asked:
        if each.place not in {"path", "query"}:
            raise DocumentError(f"`{each.wire_name}` stands in the {each.place}, and a URI has no place for it")
    query = [call.names[each.key] for each in call.asked if each.place == "query" and _is_variable(call, each)]
    if lacking := [
        e.wire_name for e in call.asked if e.place == "query" and e.is_required and not _is_variable(call, e)
    ]:
        raise DocumentError(f"`{lacking[0]}` is no plain value, and a URI has no place for it")
    path = _IN_PATH.sub(
        # A value that the operator has fixed may be a secret, and the URI is listed.
        lambda found: f"{{{call.names['path', found[1]]}}}" if ("path", found[1]) not in call.values else "-",
        operation.path.partition("#")[0].partition("?")[0],
    )
    http = http_of(call, reader, response_of(operation, reader.references, reader.schemas))
    kept = {each.input.wire_name for each in call.parameters if call.names[each.input.key] in query}
    if "query" in http:
        fixed = {each.input.wire_name for each in call.parameters if each.input.key in call.values}
        http["query"] = {name: value for name, value in http["query"].items() if name in kept | fixed}
    in_query = f"{{?{','.join(query)}}}" if query else ""
    made: dict[str, Json] = {"uri": f"{scheme}://{path}{in_query}", "http": http}
    if description := override.description or description_of(operation):
        made["description"] = description
    return made


def _is_variable(call: Call, each: Input) -> bool:
    parameter = next(one for one in call.parameters if one.input.key == each.key)
    return parameter.is_scalar and re.fullmatch(r"\w+", call.names[each.key]) is not None
