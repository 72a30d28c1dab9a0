"""TOML, with one table per server (https://toml.io/en/v1.0.0)."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from gateway.client_configs.notation import NotEditableError
from gateway.json_types import Json

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEADER: Final = re.compile(r"^[ \t]*\[.*$", re.MULTILINE)
_COMMENTS_AT_END: Final = re.compile(r"^[ \t]*#.*\n(?:[ \t]*(?:#.*)?\n)*\Z", re.MULTILINE)
"""Comments at the end of a table's text. They belong to the next table."""


class TomlNotation:
    """Implements `Notation` for paths to tables."""

    name: Final = "toml"

    def render(self, document: Mapping[str, Json]) -> str:
        return "\n".join(_tables((), document))

    def parse(self, text: str) -> Json:
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise NotEditableError(f"it is not TOML: {error}") from error

    def put(self, text: str, path: Sequence[str], value: Json) -> str:
        if not isinstance(value, dict):
            raise NotEditableError("only a table can be put into it")
        table = "\n".join(_tables(tuple(path), value))
        starts = [match.start() for match in _HEADER.finditer(text)]
        own = [(start, end) for start, end in pairwise([*starts, len(text)]) if _is_below(text, start, path)]
        # From the end, so that earlier positions stay valid.
        for start, end in reversed(own):
            comments = _COMMENTS_AT_END.search(text[start:end])
            text = text[:start] + (comments[0] if comments else "") + text[end:]
        if own:
            at = own[0][0]
            return text[:at] + table + ("\n" if text[at:] else "") + text[at:]
        return f"{text.rstrip()}\n\n{table}" if text.strip() else table


def _is_below(text: str, start: int, path: Sequence[str]) -> bool:
    """Whether the header at a position is that of the table at `path`, or of a nested table."""
    header = text[start : text.find("\n", start) if "\n" in text[start:] else len(text)]
    try:
        found: Json = tomllib.loads(header)
    except tomllib.TOMLDecodeError:  # the line of a longer value
        return False
    for key in path:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return True


def _tables(path: tuple[str, ...], table: Mapping[str, Json]) -> list[str]:
    """Return the text of a table and its nested tables."""
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    lines = [f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if key not in inner]
    texts = [f"[{'.'.join(map(_key, path))}]\n{''.join(lines)}"] if lines or (path and not inner) else []
    for key, value in inner.items():
        texts += _tables((*path, key), value)
    return texts


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(value: Json) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return _string(value) if isinstance(value, str) else json.dumps(value)


def _string(text: str) -> str:
    """Return a basic string: JSON's escapes, and DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
