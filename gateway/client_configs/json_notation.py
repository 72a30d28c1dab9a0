"""Edits JSON with comments and trailing commas (JSONC)."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gateway.client_configs.notation import NotEditableError, nested
from gateway.json_types import Json

_TOKEN: Final = re.compile(
    # Editors on Windows can write U+FEFF at the start.
    r"""(?P<space>[\s\ufeff]+|//[^\n]*|/\*.*?\*/)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>[{}\[\],:])|(?P<word>[^\s{}\[\],:"/]+)""",
    re.DOTALL,
)
_INDENT: Final = "  "


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class _Member(NamedTuple):
    """A key, and the position of its value."""

    key: str
    key_start: int
    start: int
    end: int


class JsonNotation:
    name: Final = "json"

    def render(self, document: Mapping[str, Json]) -> str:
        return json.dumps(document, indent=_INDENT, ensure_ascii=False) + "\n"

    def parse(self, text: str) -> Json:
        tokens = [*_tokens(text)]
        # JSON does not allow trailing commas.
        kept = [
            token.text
            for token, after in zip(tokens, [*tokens[1:], None], strict=False)
            if not _is_trailing_comma(token, after)
        ]
        try:
            return json.loads(" ".join(kept)) if kept else {}
        except json.JSONDecodeError as error:
            raise NotEditableError(f"it is not JSON: {error.msg}") from error

    def put(self, text: str, path: Sequence[str], value: Json) -> str:
        first = next(_tokens(text), None)
        if first is None:
            comments = f"{text.rstrip()}\n" if text.strip() else ""
            return comments + self.render(nested(path, value))
        start = first.start
        *parents, name = path
        for depth, parent in enumerate(parents):
            member = next((each for each in _members(text, start) if each.key == parent), None)
            if member is None:
                return _inserted(text, start, parent, nested(path[depth + 1 :], value))
            start = member.start
        for member in _members(text, start):
            if member.key == name:
                indent = _indentation(text, member.key_start)
                return text[: member.start] + _dumped(value, indent) + text[member.end :]
        return _inserted(text, start, name, value)


def _is_trailing_comma(token: _Token, after: _Token | None) -> bool:
    return token.text == "," and after is not None and after.text in {"}", "]"}


def _inserted(text: str, start: int, key: str, value: Json) -> str:
    members = _members(text, start)
    if members:
        indent = _indentation(text, members[-1].key_start)
        end = members[-1].end
        # Directly after the last value, so that a trailing comma stays at the end.
        return f"{text[:end]},\n{indent}{_entry(key, value, indent)}{text[end:]}"
    outer = _indentation(text, start)
    end = _end_of(text, start) - 1
    return f"{text[: start + 1]}\n{outer}{_INDENT}{_entry(key, value, outer + _INDENT)}\n{outer}{text[end:]}"


def _entry(key: str, value: Json, indent: str) -> str:
    return f"{json.dumps(key, ensure_ascii=False)}: {_dumped(value, indent)}"


def _dumped(value: Json, indent: str) -> str:
    return json.dumps(value, indent=_INDENT, ensure_ascii=False).replace("\n", f"\n{indent}")


def _indentation(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]


def _members(text: str, start: int) -> list[_Member]:
    """Return the members of the object at `start`.

    Raises:
        NotEditableError: the value is not an object, or contains a duplicate key.
    """
    if text[start] != "{":
        raise NotEditableError("it contains another value where an object is expected")
    members: list[_Member] = []
    tokens = [*_tokens(text[start + 1 : _end_of(text, start) - 1], offset=start + 1)]
    position = 0
    while position < len(tokens):
        key = tokens[position]
        if key.kind != "string" or position + 2 >= len(tokens) or tokens[position + 1].text != ":":
            raise NotEditableError("it is not JSON")
        value = tokens[position + 2]
        end = _end_of(text, value.start)
        members.append(_Member(json.loads(key.text), key.start, value.start, end))
        position += 3
        while position < len(tokens) and tokens[position].start < end:
            position += 1
        if position < len(tokens) and tokens[position].text == ",":
            position += 1
    if len({member.key for member in members}) < len(members):
        raise NotEditableError("it contains a duplicate key")
    return members


def _end_of(text: str, start: int) -> int:
    depth = 0
    for token in _tokens(text[start:], offset=start):
        depth += (token.text in {"{", "["}) - (token.text in {"}", "]"})
        if depth <= 0:
            return token.end
    raise NotEditableError("it ends unexpectedly")


def _tokens(text: str, *, offset: int = 0) -> Iterator[_Token]:
    # Lazy, because most callers stop early.
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotEditableError("it is not JSON")
        if match.lastgroup != "space":
            yield _Token(match.lastgroup or "", match[0], match.start() + offset, match.end() + offset)
        position = match.end()
