"""Turns what a plugin's function returned into an outcome. CONFIG reference: "python", "Returns".

Everything structured goes through JSON once and comes back as plain lists and dictionaries, so that what is validated
and sent is what was returned, and no part of it is shared with the plugin any longer.
"""

import inspect
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson
from pydantic_core import to_json, to_jsonable_python

from gateway import exact_json
from gateway.errors import ExecutionError
from gateway.executors.invocation import Blocks, Outcome, RawOutput, Value
from gateway.executors.output.media_types import OCTETS
from gateway.json_types import Json, JsonObject
from gateway.plugin import Audio, Content, EmbeddedResource, Image, ResourceLink, Text

_CONTENT: Final = (Text, Image, Audio, EmbeddedResource, ResourceLink)


def outcome_of(returned: object) -> Outcome:
    """Convert what a tool's or a resource's function returned.

    Raises:
        ExecutionError: it cannot be written as JSON; the text names the type that stands in the way.
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
    """The content block that a class of `gateway.plugin` stands for, in the wire form of 2026-07-28."""
    block = _BLOCKS[type(content)](content)
    if content.annotations:
        block["annotations"] = plain_json(content.annotations)
    return block


def plain_json(value: object) -> Json:
    """Return `value` as JSON has it: dataclasses and pydantic models as objects, dates as text, sets as lists.

    Raises:
        ExecutionError: a part of it has no form in JSON.
    """
    return exact_json.loads(_written(value))


def _written(value: object) -> bytes:
    if inspect.iscoroutine(value):
        value.close()
        raise ExecutionError("The function returned a coroutine; it should be declared with `async def`")
    try:
        written = exact_json.dumps(value, default=_jsonable, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json(_reason(error)) from error
    # orjson writes NaN and Infinity as null; without a null there is no need to look for them.
    if b"null" in written and (number := _non_finite(value)) is not None:
        raise _not_json(f"{number}; return None, or text, in its place")
    return written


def _not_json(reason: str) -> ExecutionError:
    return ExecutionError(f"The function returned what cannot be written as JSON: {reason}")


def _non_finite(value: object) -> str | None:
    """The first number in `value` that JSON lacks, for which null has been written; None if there is none."""
    exact = to_json(value, inf_nan_mode="constants", serialize_unknown=True)
    if not _NON_FINITE.search(exact):
        return None
    # A text may hold these words, too, so the values are asked.
    return exact_json.non_finite(to_jsonable_python(value, serialize_unknown=True))


def valid_text(text: str) -> str:
    """Return `text` with what is not Unicode, such as half of a surrogate pair from a file name, replaced."""
    return text if text.isascii() else text.encode(errors="replace").decode()


_NON_FINITE: Final = re.compile(rb"NaN|Infinity")
# Dataclasses go to pydantic, which knows the serializers that their fields may have.
_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS


def _jsonable(value: object) -> Json:
    if isinstance(value, Iterator):  # it may have no end
        raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")
    return to_jsonable_python(value)


def _reason(error: BaseException) -> str:
    """Return the error that `default` raised, which orjson hides behind a text of its own."""
    return str(error.__cause__ or error).partition("\n")[0]


def _item_block(item: object) -> JsonObject:
    match item:
        case Text() | Image() | Audio() | EmbeddedResource() | ResourceLink():
            return block_of(item)
        case str():
            return {"type": "text", "text": valid_text(item)}
        case _:
            return {"type": "text", "text": exact_json.dumps(plain_json(item)).decode()}


def _text(content: Text) -> dict[str, Json]:
    return {"type": "text", "text": valid_text(content.text)}


def _media(kind: str) -> Callable[[Image | Audio], dict[str, Json]]:
    return lambda content: {"type": kind, "data": b64encode(content.data).decode(), "mimeType": content.mime_type}


def _embedded(content: EmbeddedResource) -> dict[str, Json]:
    if isinstance(content.contents, str):
        contents = {"text": valid_text(content.contents)}
    else:
        contents = {"blob": b64encode(content.contents).decode()}
    mime_type = {} if content.mime_type is None else {"mimeType": content.mime_type}
    return {"type": "resource", "resource": {"uri": content.uri, **mime_type, **contents}}


def _link(content: ResourceLink) -> dict[str, Json]:
    facts = {
        "uri": content.uri,
        "name": content.name,
        "title": content.title,
        "description": content.description,
        "mimeType": content.mime_type,
        "size": content.size,
    }
    return {"type": "resource_link", **{key: value for key, value in facts.items() if value is not None}}


_BLOCKS: Final[dict[type[Content], Callable[[Any], dict[str, Json]]]] = {
    Text: _text,
    Image: _media("image"),
    Audio: _media("audio"),
    EmbeddedResource: _embedded,
    ResourceLink: _link,
}
