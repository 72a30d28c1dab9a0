"""Styles: the ways to write a value of any JSON type into a query, a header field or a cookie.

They are those of OpenAPI 3.1, "Style Values".

A value stays in its place: what separates fields, members or items is encoded within them, and where the style has no
encoding for it, the value is refused.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote

import msgspec

from gateway.config.models.backends import FieldStyle
from gateway.errors import ExecutionError
from gateway.json_types import Json
from gateway.language.templates.render_state import text_of

Encode = Callable[[str], str]
Pair = tuple[str, str]
"""Name and value, both encoded."""

_DELIMITERS: Final = {"form": ",", "simple": ",", "spaceDelimited": " ", "pipeDelimited": "|"}

_percent: Final[Encode] = partial(quote, safe="", errors="replace")
# RFC 3986 §3.4: reserved characters that a query's value may hold as they are; `&`, `=` and `+` separate.
_reserved: Final[Encode] = partial(quote, safe="!$'()*,/:;?@", errors="replace")
# RFC 6265 §4.1.1, but for the percent sign, which begins an encoded octet.
_cookie_octets: Final[Encode] = partial(quote, safe="!#$&'()*+-./:<=>?@[]^_`{|}~", errors="replace")


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled style."""

    name: str
    explodes: bool
    allows_reserved: bool = False

    def query_pairs(self, name: str, value: Json, *, taken: Container[str]) -> list[Pair]:
        """The fields of a query; `taken` are the names of all fields, in lower case.

        Raises:
            ExecutionError: the value cannot be written so that it reads as the same.
        """
        encode = _reserved if self.allows_reserved else _percent
        if self.name == "deepObject" and isinstance(value, Mapping | list):
            return [(_percent(_own(path, name, taken)), encode(text)) for path, text in _deep(name, value)]
        return self._pairs(name, value, encode, taken=taken)

    def cookie_pairs(self, name: str, value: Json, *, taken: Container[str]) -> list[Pair]:
        """The pairs of a cookie; as for `query_pairs`."""
        return self._pairs(name, value, _cookie_octets, taken=taken)

    def header_value(self, name: str, value: Json) -> str | None:
        """The value of a header field, in which nothing is encoded; None for a list or an object without members.

        Raises:
            ExecutionError: an item holds a comma.
        """
        match value:
            case Mapping():
                between = "=" if self.explodes else ","
                pairs = (
                    # Not exploded, one comma stands between name and value.
                    _without(f"{key}{between}{text_of(item)}", ",", name, least=1 if between == "," else 0)
                    for key, item in _given(value)
                )
                return ",".join(pairs) or None
            case list():
                return ",".join(_without(text_of(item), ",", name) for item in value) if value else None
            case _:
                return text_of(value)

    def _pairs(self, name: str, value: Json, encode: Encode, *, taken: Container[str]) -> list[Pair]:
        match value:
            # OpenAPI 3.1, "Style Examples": the members become fields, and the name of the object itself is not sent.
            case Mapping() if self.explodes:
                return [(encode(_own(key, name, taken)), encode(text_of(item))) for key, item in _given(value)]
            case Mapping():
                texts = [text for key, item in _given(value) for text in (key, text_of(item))]
                # RFC 6570 §2.3: an object or a list without members counts as undefined.
                return [(_percent(name), self._joined(name, texts, encode))] if texts else []
            case list() if self.explodes:
                return [(_percent(name), encode(text_of(item))) for item in value]
            case list():
                return [(_percent(name), self._joined(name, list(map(text_of, value)), encode))] if value else []
            case _:
                return [(_percent(name), encode(text_of(value)))]

    def _joined(self, name: str, texts: list[str], encode: Encode) -> str:
        delimiter = _DELIMITERS.get(self.name, ",")
        if delimiter == ",":  # stays as it is between encoded items, as in RFC 6570
            return ",".join(encode(text).replace(",", "%2C") for text in texts)
        # The delimiter itself is sent encoded, so within an item it could not be told apart.
        return _percent(delimiter).join(encode(_without(text, delimiter, name)) for text in texts)


def style_of(config: FieldStyle, *, default: str = "form") -> Style:
    """Compile a style; `default` is that of the place."""
    name = config.style or default
    explodes = name == "form" if config.explode is None else config.explode
    return Style(name=name, explodes=explodes, allows_reserved=config.allow_reserved)


def _given(value: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    # RFC 6570 §2.3: null is undefined, and an undefined member is left out.
    return ((key, item) for key, item in value.items() if item is not None)


def _deep(path: str, value: Json) -> Iterator[Pair]:
    """The members of an object as `filter[status]`; items of lists within have their index."""
    match value:
        case Mapping():
            for key, item in _given(value):
                if "[" in key or "]" in key:
                    raise ExecutionError(f"`{key}` holds a bracket, and cannot be the name of a member of `{path}`")
                yield from _deep(f"{path}[{key}]", item)
        case list():
            # As in forms: to PHP, numbers with a gap are keys, not a list.
            for index, item in enumerate(item for item in value if item is not None):
                yield from _deep(f"{path}[{index}]", item)
        case _:
            yield path, text_of(value)


def _own(key: str, name: str, taken: Container[str]) -> str:
    # Otherwise a caller's key could override a field whose value the file fixes. Some servers ignore case.
    if key.lower() in taken:
        raise ExecutionError(f"`{key}` cannot be a member of `{name}`: the request has a field of that name already")
    return key


def _without(text: str, delimiter: str, name: str, *, least: int = 0) -> str:
    if text.count(delimiter) > least:
        raise ExecutionError(f"an item of `{name}` holds `{delimiter}`, which separates its items")
    return text
