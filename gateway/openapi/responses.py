"""Responses of operations: the output schema and the requested media type."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import orjson

from gateway.json_types import Json
from gateway.openapi.document import DocumentError
from gateway.openapi.operations import Operation
from gateway.openapi.references import Node, References
from gateway.openapi.schemas import ConvertedSchema, Schemas

MAX_SCHEMA_BYTES: Final = 8 * 1024
"""Larger output schemas are reduced to their type, because every `tools/list` contains them."""

_JSON: Final = re.compile(r"(?i)application/json|[\w.+-]+/[\w.+-]+\+json|text/json")
_SUCCESS: Final = re.compile(r"2(\d\d|XX|xx)")


class Response(msgspec.Struct, frozen=True, kw_only=True):
    output: Mapping[str, Json]
    accepts: str | None
    """The media type for `Accept`. None for any."""


def response_of(operation: Operation, references: References, schemas: Schemas) -> Response:
    """Return the declared response. It is structured if all successful responses are JSON."""
    try:
        successes = list(_successes(operation, references))
    except DocumentError:  # treated as undeclared
        return Response(output={}, accepts=None)
    found = [(node, _json_type(node)) for node in successes]
    types = {media_type for _, media_type in found if media_type is not None}
    # With several types, a specific `Accept` could cause 406 (RFC 9110 §15.5.7).
    accepts = next(iter(types)) if len(types) == 1 else None
    # RFC 9110 §9.3.2: a response to HEAD has no content.
    if not found or operation.method == "head" or any(media_type is None for _, media_type in found):
        return Response(output={}, accepts=accepts)
    try:
        schema = _joined([node.at("content", media_type or "", "schema") for node, media_type in found], schemas)
    except DocumentError:
        schema = {}
    return Response(output=_output(schema), accepts=accepts)


def _successes(operation: Operation, references: References) -> Iterator[Node]:
    responses = operation.node.at("responses")
    for status, _ in responses.members():
        if _SUCCESS.fullmatch(status):
            yield references.follow(responses.at(status))


def _json_type(node: Node) -> str | None:
    content = node.at("content").value
    return (
        next((each for each in content if _JSON.fullmatch(each.partition(";")[0])), None)
        if isinstance(content, dict)
        else None
    )


def _joined(nodes: list[Node], schemas: Schemas) -> dict[str, Json]:
    different: dict[bytes, ConvertedSchema] = {}
    for node in nodes:
        converted = schemas.convert(node, "response")
        different.setdefault(orjson.dumps(converted.schema), converted)
    each = list(different.values())
    schema: Json = each[0].schema if len(each) == 1 else {"anyOf": [one.schema for one in each]}
    return _bounded(schema, frozenset().union(*(one.names for one in each)), schemas)


def _bounded(schema: Json, names: frozenset[str], schemas: Schemas) -> dict[str, Json]:
    """Return the schema with its definitions, or only its type if they are too large."""
    made: dict[str, Json] = dict(schema) if isinstance(schema, dict) else {}
    definitions = schemas.definitions(names, "response")
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
    """Return whether every valid value is an object."""
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
