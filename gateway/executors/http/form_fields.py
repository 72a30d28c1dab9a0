"""Fields of an application/x-www-form-urlencoded body, from values that may be nested. Pure.

HTML knows no nesting. What servers read (PHP, Rack, `qs`) is brackets: `a[b]=1`. A list repeats its field, as HTML
forms do; within brackets, or with lists or objects in it, its items are numbered, so that it stays one list.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlencode

from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import FileArgument
from gateway.language.templates.render_state import text_of

MAX_FORM_BYTES: Final = 16 * 2**20
"""The longest form. Each inner field repeats the names of the outer ones, so that a form outgrows its message."""


def encoded_form(fields: JsonObject) -> bytes:
    """Encode fields.

    Raises:
        ExecutionError: a name cannot be that of a field, or the form would be too long.
    """
    pairs, room = [], MAX_FORM_BYTES
    for name, member in fields.items():
        for pair in _pairs(name, member, is_inner=False):
            room -= len(pair[0]) + len(pair[1]) + 2
            if room < 0:
                raise ExecutionError(f"the form would be over {MAX_FORM_BYTES // 2**20} MiB")
            pairs.append(pair)
    return urlencode(pairs, errors="replace").encode()


def _pairs(name: str, value: Json, *, is_inner: bool) -> Iterator[tuple[str, str]]:
    match value:
        case None:
            return
        case FileArgument():
            yield name, value.base64
        case Mapping():
            for key, member in value.items():
                yield from _pairs(f"{name}[{_plain(key)}]", member, is_inner=True)
        case list():
            items = [item for item in value if item is not None]
            is_numbered = is_inner or any(_is_nested(item) for item in items)
            for index, item in enumerate(items):
                yield from _pairs(f"{name}[{index}]" if is_numbered else name, item, is_inner=is_numbered)
        case _:
            yield name, text_of(value)


def _is_nested(value: Json) -> bool:
    return isinstance(value, list | Mapping) and not isinstance(value, FileArgument)


def _plain(key: str) -> str:
    """Refuse a name that would be read as several: a caller's object has the depth that its schema gives it."""
    if "[" in key or "]" in key:
        raise ExecutionError(f"the field name {key[:60]!r} holds a bracket, which forms nest by")
    return key
