"""Derives the output schema and the `Accept` header of an operation from its responses."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import orjson

from gateway.json_types import Json
from gateway.openapi.document import DocumentError, Node, References
from gateway.openapi.operations import Operation
from gateway.openapi.schemas import Schemas

MAX_SCHEMA_BYTES: Final = 8 * 1024
"""Larger output schemas are reduced to their type, because every `tools/list` contains them."""

_JSON: Final = re.compile(r"(?i)application/json|[\w.+-]+/[\w.+-]+\+json|text/json")
_SUCCESS: Final = re.compile(r"2(\d\d|XX|xx)")


def response_of(
    operation: Operation, references: References, schemas: Schemas
) -> tuple[Mapping[str, Json], str | None]:
    """Return the keys of `output:` if all successful responses are JSON, and the media type for `Accept`, if known."""
    try:
        successes = list(_successes(operation, references))
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
    """Combine the schemas and their definitions, or return only the type if the result is too large."""
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
