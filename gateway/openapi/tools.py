"""Converts operations to definitions of tools and resources, as data with the keys of the YAML file."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

import msgspec
import orjson

from gateway import exact_json
from gateway.config.models.backends import Connection
from gateway.config.models.definitions import OperationOverride
from gateway.config.models.interpolated_text import InterpolatedText, Interpolation, Part, parts_of
from gateway.config.models.openapi import OpenApi
from gateway.json_types import Json
from gateway.language.schemas.rules import MAX_BYTES
from gateway.language.uris.templates import RESERVED
from gateway.openapi.document import DocumentError, Node, References
from gateway.openapi.operations import Operation
from gateway.openapi.parameters import Input, Parameter, Place, input_names, parameters_of
from gateway.openapi.request_bodies import RequestBody, request_body_of
from gateway.openapi.schemas import Schemas
from gateway.openapi.servers import base_url, sent_fields

MAX_DESCRIPTION: Final = 2048
"""Maximum size of a description, in bytes."""
_MAX_WORD: Final = 64
MAX_SCHEMA_BYTES: Final = 8 * 1024
"""Larger output schemas are reduced to their type, because every `tools/list` contains them."""

_JSON_TYPE: Final = re.compile(r"(?i)application/json|[\w.+-]+/[\w.+-]+\+json|text/json")
_SUCCESS: Final = re.compile(r"2(\d\d|XX|xx)")
_IN_PATH: Final = re.compile(r"\{([^{}]+)\}")
_ANNOTATIONS: Final[Mapping[str, Mapping[str, bool]]] = {
    "get": {"read_only": True},
    "head": {"read_only": True},
    "options": {"read_only": True},
    "put": {"idempotent": True},
    "delete": {"idempotent": True, "destructive": True},
}
"""Annotations by method. RFC 9110 §9.2 defines safe and idempotent methods."""
_FIELDS: Final[Mapping[Place, str]] = {"query": "query", "header": "headers", "cookie": "cookies"}


class ApiEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An OpenAPI document, and the configuration entry that uses the document."""

    root: Node
    references: References
    schemas: Schemas
    response_schemas: Schemas
    name: str
    config: OpenApi
    connection: Connection | None
    credentials: frozenset[tuple[str, str]]
    """Fields that callers must not set. See `credential_fields`."""
    notes: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Maps warnings about ignored parts of the document to the affected operations."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """The request of an operation: its named inputs and the values set by the operator."""

    operation: Operation
    parameters: list[Parameter]
    body: RequestBody | None
    names: dict[tuple[Place, str], str]
    values: dict[tuple[Place, str], Json]
    hidden: frozenset[tuple[Place, str]]

    @property
    def inputs(self) -> list[Input]:
        found = [*(each.input for each in self.parameters), *(self.body.inputs if self.body else ())]
        return sorted(found, key=lambda each: not each.is_required)

    @property
    def asked(self) -> list[Input]:
        return [each for each in self.inputs if each.key not in self.values and each.key not in self.hidden]


def call_of(operation: Operation, api: ApiEntry, override: OperationOverride) -> Call:
    """Build the request of an operation."""

    def note(message: str) -> None:
        api.notes.setdefault(message, []).append(operation.key)

    parameters = parameters_of(operation, api.schemas, note)
    body = request_body_of(operation, api.schemas)
    if body is None and operation.node.value.get("requestBody") is not None:
        note("the request body is not sent: it has no content, or is optional with this method")
    names = input_names([*(each.input for each in parameters), *(body.inputs if body else ())])
    keys = {name: key for key, name in names.items()}
    if unknown := [name for name in (*override.hide, *override.set) if name not in keys]:
        raise DocumentError(f"the override names `{unknown[0]}`, but the inputs are {', '.join(keys)}")
    if body is not None and any(keys[name][0] == "body" for name in override.hide):
        body = msgspec.structs.replace(body, is_open=False)  # a hidden member must not be sent as an undeclared one
    values = {keys[name]: value for name, value in override.set.items()}
    credentials = {key for key in names if (key[0], key[1].lower()) in api.credentials and key not in values}
    call = Call(
        operation=operation,
        parameters=parameters,
        body=body,
        names=names,
        values=values,
        hidden=frozenset(keys[name] for name in override.hide) | credentials,
    )
    for each in call.inputs:
        if each.is_required and each.key in credentials:
            if (each.place, each.wire_name.lower()) not in sent_fields(api.connection):
                note(f"`{each.wire_name}` is a credential, but the connection does not send it")
        elif each.is_required and each.key in call.hidden:
            raise DocumentError(f"`{names[each.key]}` is required, so it cannot be hidden. Use `set`")
    return call


def tool_of(operation: Operation, api: ApiEntry, override: OperationOverride) -> dict[str, Json]:
    """Return the definition of an operation's tool.

    Raises:
        DocumentError: the operation cannot be a tool.
    """
    call = call_of(operation, api, override)
    output, accepts = _response_of(operation, api.response_schemas)
    description = override.description or description_of(operation)
    made: dict[str, Json] = {} if description is None else {"description": description}
    if operation.tags:
        made["tags"] = operation.tags
    if annotations := _ANNOTATIONS.get(operation.method):
        made["annotations"] = dict(annotations)
    made |= _inputs(call, api)
    made["http"] = http_of(call, api, accepts)
    if output:
        made["output"] = dict(output)
    return made


def resource_of(operation: Operation, api: ApiEntry, override: OperationOverride, *, scheme: str) -> dict[str, Json]:
    """Return the definition of an operation's resource or resource template.

    Raises:
        DocumentError: the operation cannot be a resource.
    """
    call = call_of(operation, api, override)
    if operation.method != "get":
        raise DocumentError("a resource must be a GET operation")
    for each in call.asked:
        if each.place not in {"path", "query"}:
            raise DocumentError(f"the {each.place} input `{each.wire_name}` cannot be part of a URI")
    query = [call.names[each.key] for each in call.asked if each.place == "query" and _is_variable(call, each)]
    if lacking := [
        e.wire_name for e in call.asked if e.place == "query" and e.is_required and not _is_variable(call, e)
    ]:
        raise DocumentError(f"`{lacking[0]}` is not a single value, so it cannot be part of a URI")
    path = _IN_PATH.sub(
        # Hide values that the operator has set, because they can be secrets, and clients can list URIs.
        lambda found: f"{{{call.names['path', found[1]]}}}" if ("path", found[1]) not in call.values else "-",
        operation.path.partition("#")[0].partition("?")[0],
    )
    http = http_of(call, api, _response_of(operation, api.response_schemas)[1])
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


def description_of(operation: Operation) -> str | None:
    """Return the summary and the description, with a note if the operation is deprecated."""
    said = operation.extension("description")
    texts = [said] if isinstance(said, str) else [operation.node.value.get(key) for key in ("summary", "description")]
    found = [text.strip() for text in texts if isinstance(text, str) and text.strip()]
    # Many documents repeat the summary in the description.
    if len(found) == 2 and found[1].startswith(found[0]):
        found = found[1:]
    if operation.is_deprecated:
        found.insert(0, "Deprecated.")
    text = "\n\n".join(found) or operation.key
    if len(text.encode()) <= MAX_DESCRIPTION:
        return text
    # A space and `…` take four bytes. An incomplete last character is dropped.
    cut = text.encode()[: MAX_DESCRIPTION - 4].decode(errors="ignore")
    words = cut.rsplit(maxsplit=1)[0]
    # Some languages have no spaces.
    return f"{words if len(cut) - _MAX_WORD < len(words) else cut} …"


def _inputs(call: Call, api: ApiEntry) -> dict[str, Json]:
    """Return the key `input`. If the inputs need `$defs` or conditions, return `input_schema` instead."""
    asked = call.asked
    definitions = api.schemas.definitions(*(each.schema for each in asked))
    asked_names = {call.names[each.key] for each in asked}
    dependencies = {} if call.body is None else call.body.dependencies(call.names)
    dependent = {
        name: kept
        for name, others in dependencies.items()
        if name in asked_names and (kept := [other for other in others if other in asked_names])
    }
    is_open = call.body is not None and call.body.is_open
    if not definitions and not dependent and not is_open:
        return {"input": _bounded({call.names[each.key]: _short(each) for each in asked})} if asked else {}
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {call.names[each.key]: each.schema for each in asked},
        "required": [call.names[each.key] for each in asked if each.is_required],
        "dependentRequired": dependent,
        "additionalProperties": is_open,
    }
    schema = {key: value for key, value in schema.items() if value or key == "additionalProperties"}
    if definitions:
        schema["$defs"] = definitions
    return {"input_schema": _bounded(schema)}


def _bounded(schema: dict[str, Json]) -> dict[str, Json]:
    if (size := len(orjson.dumps(schema))) > MAX_BYTES:
        raise DocumentError(f"its input schema has {size // 1024} KiB, but only {MAX_BYTES // 1024} KiB are allowed")
    return schema


def _short(each: Input) -> Json:
    schema: dict[str, Json] = dict(each.schema) if isinstance(each.schema, dict) else {}
    if isinstance(schema.get("required"), bool):
        del schema["required"]
    # The short form has no name for the null type.
    if schema.keys() == {"type"} and isinstance(schema["type"], str) and schema["type"] != "null":
        return schema["type"] if each.is_required else f"{schema['type']}?"
    if "required" in schema:  # the JSON Schema keyword, which conflicts with `required` of the short form
        return {"allOf": [schema]} if each.is_required else {"allOf": [schema], "required": False}
    return schema if each.is_required else {**schema, "required": False}


def http_of(call: Call, api: ApiEntry, accepts: str | None) -> dict[str, Json]:
    made: dict[str, Json] = {}
    base = ""
    if api.config.connection is not None:
        made["connection"] = api.config.connection
    else:
        base = base_url(call.operation, api.root)
    if call.operation.method != "get" or call.body is not None:
        made["method"] = call.operation.method.upper()
    made["url"] = _text_of([base, *_path(call)])
    if api.config.connection is None and api.config.allow_private is not None:
        made["allow_private"] = api.config.allow_private
    fields: dict[str, dict[str, Json]] = {"query": {}, "headers": {}, "cookies": {}}
    for each in call.parameters:
        key = each.input.key
        if key[0] in _FIELDS and key not in call.hidden:
            written = call.values.get(key, each.written(call.names[key]))
            fields[_FIELDS[key[0]]][each.input.wire_name] = _as_text(written) if key in call.values else written
    shown = {key: name for key, name in call.names.items() if key not in call.hidden}
    body = {} if call.body is None else call.body.http(shown, call.values)
    # Do not override the connection's `Accept`.
    if accepts is not None and (api.connection is None or "accept" not in map(str.lower, api.connection.headers)):
        fields["headers"] = {"Accept": accepts, **fields["headers"]}
    fields["headers"] |= body.pop("headers", {})
    return {**made, **{name: value for name, value in fields.items() if value}, **body}


def _path(call: Call) -> Iterator[Part]:
    by_name = {each.input.wire_name: each for each in call.parameters if each.input.place == "path"}
    for index, part in enumerate(_IN_PATH.split(call.operation.path.partition("#")[0])):
        if index % 2 == 0:
            # Do not encode characters that the document has already encoded.
            yield quote(part, safe=RESERVED + "%")
        elif ("path", part) in call.values:
            yield from _in_url(call.values["path", part])
        else:
            yield by_name[part].in_path(call.names["path", part])


def _in_url(value: Json) -> Iterator[Part]:
    for part in parts_of(_as_text(value)):
        if isinstance(part, Interpolation):
            # Keep the encoded text marked as a secret, so that `explain` masks it.
            yield Interpolation(quote(part.text, safe=""), part.secret)
        else:
            yield quote(part, safe="")


def _as_text(value: Json) -> str:
    if isinstance(value, Mapping | list):
        raise DocumentError("`set` of a parameter must be text, a number or a boolean, not a list or an object")
    return value if isinstance(value, str) else exact_json.dumps(value).decode()


def _text_of(parts: Iterable[Part]) -> str:
    text = InterpolatedText(tuple(parts))
    return text if any(isinstance(part, Interpolation) for part in text.parts) else str(text)


def _response_of(operation: Operation, schemas: Schemas) -> tuple[Mapping[str, Json], str | None]:
    """Return the keys of `output:` if all successful responses are JSON, and the media type for `Accept`, if known."""
    try:
        responses = operation.node.at("responses")
        successes = [schemas.follow(node) for status, node in responses.members() if _SUCCESS.fullmatch(status)]
    except DocumentError:  # treat the responses as undeclared
        return {}, None
    found = [(node, _json_type(node)) for node in successes]
    types = {media_type for _, media_type in found if media_type is not None}
    # With several types, a specific `Accept` could cause 406 (RFC 9110 §15.5.7).
    accepts = next(iter(types)) if len(types) == 1 else None
    # RFC 9110 §9.3.2: a response to HEAD has no content.
    if not found or operation.method == "head" or any(media_type is None for _, media_type in found):
        return {}, accepts
    try:
        schema = _joined([node.at("content", media_type or "", "schema") for node, media_type in found], schemas)
    except DocumentError:
        schema = {}
    return _output(schema), accepts


def _json_type(node: Node) -> str | None:
    content = node.at("content").object
    return next((each for each in content if _JSON_TYPE.fullmatch(each.partition(";")[0])), None)


def _joined(nodes: list[Node], schemas: Schemas) -> dict[str, Json]:
    """Combine the schemas with `anyOf`, and add their definitions. Return only the type if the result is too large."""
    converted = [schemas.convert(node) for node in nodes]
    each = list({orjson.dumps(schema): schema for schema in converted}.values())
    schema: Json = each[0] if len(each) == 1 else {"anyOf": each}
    made: dict[str, Json] = dict(schema) if isinstance(schema, dict) else {}
    definitions = schemas.definitions(schema)
    whole = {**made, "$defs": definitions} if definitions else made
    if len(orjson.dumps(whole)) <= MAX_SCHEMA_BYTES:
        return whole
    kind = made.get("type")
    return {"type": kind} if isinstance(kind, str) else {}


def _output(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the keys of `output:`. MCP requires an object, so other values are wrapped in `result`."""
    definitions = schema.pop("$defs", None)
    shared = {} if definitions is None else {"$defs": definitions}
    # `accept`: documents are often wrong about responses, and a result is more useful than an error.
    if _is_object(schema, definitions or {}):
        return {
            "schema": {**schema, **shared} if schema.get("type") else {"type": "object", **schema, **shared},
            "mismatch": "accept",
        }
    wrapped = {"type": "object", "properties": {"result": schema}, "required": ["result"], **shared}
    return {"select": "{result: @}", "schema": wrapped, "mismatch": "accept"}


def _is_object(schema: Json, definitions: Mapping[str, Json], *, depth: int = 8) -> bool:
    # `depth` ends cyclic references.
    if not isinstance(schema, dict) or not depth:
        return False
    if isinstance(reference := schema.get("$ref"), str):
        return _is_object(definitions.get(reference.rpartition("/")[2]), definitions, depth=depth - 1)
    if (kind := schema.get("type")) is not None:
        return bool(kind == "object")
    if "properties" in schema:
        return True
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list):
        return all(_is_object(each, definitions, depth=depth - 1) for each in branches)
    return any(_is_object(each, definitions, depth=depth - 1) for each in schema.get("allOf", ()))
