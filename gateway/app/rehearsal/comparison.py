"""Compare what a tool answered with what its test expects. Pure."""

import json
import re
from collections.abc import Iterator
from difflib import ndiff
from typing import Final, NamedTuple

import orjson

from gateway.config.tool_tests import Expectation, TextMatch
from gateway.json_types import Json, JsonObject

_MOST_LINES: Final = 60
"""Of a difference that are shown."""
_ABSENT: Final[Json] = object()


class Mismatch(NamedTuple):
    """Why an answer is not the one that was expected."""

    reason: str
    difference: tuple[str, ...] = ()
    """Lines that begin with `- ` for what was expected, with `+ ` for what came, with spaces for what both have."""


def mismatch(result: JsonObject, expected: Expectation | None) -> Mismatch | None:
    """Compare the result of `tools/call`; None if it is as expected."""
    text = _text_of(result)
    failed = result.get("isError") is True
    if expected is not None and expected.error is not None:
        if not failed:
            return Mismatch("expected an error, and it succeeded", _came(text))
        return _of_text(text, expected.error, what="error")
    if failed:
        return Mismatch("failed", _came(text))
    if expected is None:
        return None
    if expected.text is not None:
        return _of_text(text, expected.text, what="text")
    return _of_json(_json_of(result, text), expected.json_, text)


def _text_of(result: JsonObject) -> str:
    """What the model would read: all text, one block after the other."""
    return "\n".join(block["text"] for block in result.get("content", ()) if block.get("type") == "text")


def _json_of(result: JsonObject, text: str) -> Json:
    if "structuredContent" in result:
        return result["structuredContent"]
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _ABSENT


def _of_text(came: str, expected: TextMatch, *, what: str) -> Mismatch | None:
    came = came.rstrip("\n")
    if expected.is_ is not None:
        whole = expected.is_.rstrip("\n")
        return None if came == whole else Mismatch(f"the {what} is another", _difference(whole, came))
    if expected.contains is not None:
        if expected.contains in came:
            return None
        return Mismatch(f"the {what} does not contain {expected.contains!r}", _came(came))
    if re.search(expected.matches or "", came):
        return None
    return Mismatch(f"the {what} does not match {expected.matches}", _came(came))


def _of_json(came: Json, expected: Json, text: str) -> Mismatch | None:
    if came is _ABSENT:
        return Mismatch("expected JSON, and it answered text", _came(text))
    if came == expected and _types_of(came) == _types_of(expected):
        return None
    return Mismatch("the JSON is another", _difference(_pretty(expected), _pretty(came)))


def _types_of(value: Json) -> Json:
    """What tells true from 1, which Python does not."""
    match value:
        case dict():
            return {name: _types_of(member) for name, member in value.items()}
        case list():
            return [_types_of(item) for item in value]
        case _:
            return isinstance(value, bool)


def _pretty(value: Json) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)


def _difference(expected: str, came: str) -> tuple[str, ...]:
    lines = ndiff(expected.splitlines(), came.splitlines())
    return tuple(_cut(line for line in lines if not line.startswith("? ")))


def _came(text: str) -> tuple[str, ...]:
    return tuple(_cut(f"+ {line}" for line in text.splitlines()))


def _cut(lines: Iterator[str]) -> Iterator[str]:
    for index, line in enumerate(lines):
        if index == _MOST_LINES:
            yield "  …"
            return
        yield line[:500]
