"""Converts results of plugin functions to outcomes.

Structured values are converted to JSON and back, so that later changes by the plugin have no effect.
"""

import inspect
import re
from base64 import b64encode
from collections.abc import Iterator
from inspect import Signature
from typing import Any, Final, get_args

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_json, to_jsonable_python

from gateway import exact_json
from gateway.config.diagnostics.problems import Problems
from gateway.errors import ExecutionError
from gateway.executors.invocation import Blocks, Outcome, RawOutput, Value
from gateway.executors.output.media_types import OCTETS
from gateway.json_types import Json, JsonObject
from gateway.plugin import Audio, Content, EmbeddedResource, Image, ResourceLink, Text

_CONTENT: Final = (Text, Image, Audio, EmbeddedResource, ResourceLink)


def outcome_of(returned: object) -> Outcome:
    """Convert the return value of a tool's or resource's function.

    Raises:
        ExecutionError: the result has no JSON form.
    """
    match returned:
        case None:
            return Blocks(content=())
        case str():
            return Value(value=valid_text(returned), size=len(returned))
        case bytes() | bytearray() | memoryview():
            return RawOutput(data=bytes(returned), media_type=OCTETS, is_blob=True)
        case Text() | Image() | Audio() | EmbeddedResource() | ResourceLink():
            return Blocks(content=(block_of(returned),))
        case list() | tuple() if any(isinstance(item, _CONTENT) for item in returned):
            return Blocks(content=tuple(_item_block(item) for item in returned))
        case _:
            written = _written(returned)
            return Value(value=exact_json.loads(written), size=len(written))


def block_of(content: Content) -> JsonObject:
    """Convert content of `gateway.plugin`, such as an `Image`, to a block in the wire format of MCP 2026-07-28."""
    block: dict[str, Json]
    match content:
        case Text():
            block = {"type": "text", "text": valid_text(content.text)}
        case Image() | Audio():
            kind = "image" if isinstance(content, Image) else "audio"
            block = {"type": kind, "data": b64encode(content.data).decode(), "mimeType": content.mime_type}
        case EmbeddedResource(contents=contents):
            resource = {
                "uri": content.uri,
                **({"mimeType": content.mime_type} if content.mime_type is not None else {}),
            }
            resource |= (
                {"text": valid_text(contents)} if isinstance(contents, str) else {"blob": b64encode(contents).decode()}
            )
            block = {"type": "resource", "resource": resource}
        case ResourceLink():
            facts = {name: getattr(content, name) for name in ("uri", "name", "title", "description", "size")}
            facts["mimeType"] = content.mime_type
            block = {"type": "resource_link", **{key: value for key, value in facts.items() if value is not None}}
    if content.annotations:
        block["annotations"] = plain_json(content.annotations)
    return block


def plain_json(value: object) -> Json:
    """Convert a value to plain JSON: dataclasses and models to objects, dates to strings, sets to lists.

    Raises:
        ExecutionError: a part of the value has no JSON form.
    """
    return exact_json.loads(_written(value))


def _written(value: object) -> bytes:
    if inspect.iscoroutine(value):
        value.close()
        raise ExecutionError("The function returned a coroutine. Declare it with `async def`")
    try:
        written = exact_json.dumps(value, default=_jsonable, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError) as error:
        # orjson wraps errors of `default`.
        raise _not_json(str(error.__cause__ or error).partition("\n")[0]) from error
    # orjson writes NaN and Infinity as null.
    if b"null" in written and (number := _non_finite(value)) is not None:
        raise _not_json(f"{number}. Return None or text instead")
    return written


def _non_finite(value: object) -> str | None:
    exact = to_json(value, inf_nan_mode="constants", serialize_unknown=True)
    if not _NON_FINITE.search(exact):  # Much faster than the walk below, which also ignores text with these words.
        return None
    return exact_json.non_finite(to_jsonable_python(value, serialize_unknown=True))


def _not_json(reason: str) -> ExecutionError:
    return ExecutionError(f"The result of the function cannot be converted to JSON: {reason}")


def valid_text(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8 encoding."""
    return text if text.isascii() else text.encode(errors="replace").decode()


_NON_FINITE: Final = re.compile(rb"NaN|Infinity")
# Pass dataclasses to pydantic, which applies the serializers of their fields.
_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS


def _jsonable(value: object) -> Json:
    if isinstance(value, Iterator):  # an iterator can be infinite
        raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")
    return to_jsonable_python(value)


def _item_block(item: object) -> JsonObject:
    match item:
        case Text() | Image() | Audio() | EmbeddedResource() | ResourceLink():
            return block_of(item)
        case str():
            return {"type": "text", "text": valid_text(item)}
        case _:
            return {"type": "text", "text": exact_json.dumps(plain_json(item)).decode()}


_UNTOLD: Final = (Any, None, Signature.empty)
_EMPTY_SCHEMAS: Final[tuple[JsonObject, ...]] = (
    {"type": "object"},
    {"type": "object", "additionalProperties": True},
    {"type": "array"},
    {"type": "array", "items": {}},
)


class Untitled(GenerateJsonSchema):
    """Generates schemas without titles of fields, because these titles only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's method
        return False


def result_schema(hint: Any, *, name: str, problems: Problems) -> JsonObject | None:
    if hint in _UNTOLD or _mentions_content(hint):
        return None
    try:
        schema = TypeAdapter(hint).json_schema(mode="serialization", schema_generator=Untitled)
    except Exception as error:  # noqa: BLE001 - Boundary: classes of a plugin can define their schema
        reason = str(error).partition("\n")[0]
        problems.warning(f"{name} has no output schema, because its return annotation has none: {reason}")
        return None
    if "$ref" in schema:  # a class that refers to itself
        # MCP 2025-11-25 schema.ts, Tool.outputSchema: the root must have a `type`.
        name = schema["$ref"].removeprefix("#/$defs/")
        schema = {"type": schema["$defs"].get(name, {}).get("type"), **schema}
    if schema.get("type") not in {"object", "array"} or schema in _EMPTY_SCHEMAS:
        return None
    return schema


def _mentions_content(hint: Any) -> bool:
    return any(hint is content for content in _CONTENT) or any(map(_mentions_content, get_args(hint)))
