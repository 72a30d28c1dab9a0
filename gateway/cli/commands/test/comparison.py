"""Compares the result of a call with the expectation of its test. Pure."""

import json
import re
from collections.abc import Iterator
from difflib import ndiff
from typing import Final, NamedTuple

import orjson

from gateway import exact_json
from gateway.config.models.tool_tests import Expectation, TextMatch
from gateway.json_types import Json, JsonObject

_MAX_LINES: Final = 60
"""Maximum number of lines of a difference."""
_ABSENT: Final[Json] = object()


class Mismatch(NamedTuple):
    """The reason why a result is not as expected."""

    reason: str
    difference: tuple[str, ...] = ()
    """Lines that start with `- ` if only expected, `+ ` if only received, or spaces."""


def mismatch(result: JsonObject, expected: Expectation | None) -> Mismatch | None:
    """Compare a result of `tools/call` with the expectation. Return None if it matches."""
    text = _text_of(result)
    failed = result.get("isError") is True
    if expected is not None and expected.error is not None:
        if not failed:
            return Mismatch("expected an error, but the call succeeded", _received(text))
        return _text_mismatch(text, expected.error, what="error")
    if failed:
        return Mismatch("failed", _received(text))
    if expected is None:
        return None
    if expected.text is not None:
        return _text_mismatch(text, expected.text, what="text")
    return _json_mismatch(_json_of(result, text), expected.json_, text)


def _text_of(result: JsonObject) -> str:
    """Return the text of all blocks, as a model reads it."""
    return "\n".join(block["text"] for block in result.get("content", ()) if block.get("type") == "text")


def _json_of(result: JsonObject, text: str) -> Json:
    if "structuredContent" in result:
        return result["structuredContent"]
    try:
        return exact_json.loads(text)
    except orjson.JSONDecodeError:
        return _ABSENT


def _text_mismatch(received: str, expected: TextMatch, *, what: str) -> Mismatch | None:
    received = received.rstrip("\n")
    if expected.is_ is not None:
        whole = expected.is_.rstrip("\n")
        return None if received == whole else Mismatch(f"the {what} is different", _difference(whole, received))
    if expected.contains is not None:
        if expected.contains in received:
            return None
        return Mismatch(f"the {what} does not contain {expected.contains!r}", _received(received))
    if re.search(expected.matches or "", received):
        return None
    return Mismatch(f"the {what} does not match {expected.matches}", _received(received))


def _json_mismatch(received: Json, expected: Json, text: str) -> Mismatch | None:
    if received is _ABSENT:
        return Mismatch("expected JSON, but received text", _received(text))
    if received == expected and _booleans_of(received) == _booleans_of(expected):
        return None
    return Mismatch("the JSON is different", _difference(_pretty(expected), _pretty(received)))


def _booleans_of(value: Json) -> Json:
    """Return the value with a distinct object for booleans, because True == 1 in Python."""
    match value:
        case dict():
            return {name: _booleans_of(member) for name, member in value.items()}
        case list():
            return [_booleans_of(item) for item in value]
        case _:
            return isinstance(value, bool)


def _pretty(value: Json) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)


def _difference(expected: str, received: str) -> tuple[str, ...]:
    lines = ndiff(expected.splitlines(), received.splitlines())
    # The `?` lines of ndiff point at characters, which are not there after long lines are cut.
    return tuple(_cut(line for line in lines if not line.startswith("? ")))


def _received(text: str) -> tuple[str, ...]:
    return tuple(_cut(f"+ {line}" for line in text.splitlines()))


def _cut(lines: Iterator[str]) -> Iterator[str]:
    for index, line in enumerate(lines):
        if index == _MAX_LINES:
            yield "  …"
            return
        yield line[:500]
