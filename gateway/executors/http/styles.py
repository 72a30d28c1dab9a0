"""Writes JSON values in queries, header fields and cookies (OpenAPI 3.1, "Style Values").

Delimiters inside values are encoded. If a style cannot encode its delimiter, values with this delimiter are rejected.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote

import msgspec

from gateway.config.models.backends import FieldStyle
from gateway.errors import ExecutionError
from gateway.json_types import Json
from gateway.language.files.file_argument import FileArgument
from gateway.language.templates.render_state import text_of

Encode = Callable[[str], str]
Pair = tuple[str, str]
"""Name and value, both encoded."""

_DELIMITERS: Final = {"form": ",", "simple": ",", "spaceDelimited": " ", "pipeDelimited": "|"}

_percent: Final[Encode] = partial(quote, safe="", errors="replace")
# RFC 3986 §3.4: reserved characters that a query can contain, except `&`, `=` and `+`.
_reserved: Final[Encode] = partial(quote, safe="!$'()*,/:;?@", errors="replace")
# RFC 6265 §4.1.1, except `%`, which starts an encoded octet.
_cookie_octets: Final[Encode] = partial(quote, safe="!#$&'()*+-./:<=>?@[]^_`{|}~", errors="replace")


class Style(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    explodes: bool
    allows_reserved: bool = False

    def query_pairs(self, name: str, value: Json, *, used_names: Container[str]) -> list[Pair]:
        """Return the query fields for a value. Members of an object must not have a name in `used_names` (lower case).

        Raises:
            ExecutionError: the style cannot express the value.
        """
        encode = _reserved if self.allows_reserved else _percent
        if self.name == "deepObject" and isinstance(value, Mapping | list):
            return [(_percent(_own(path, name, used_names)), encode(text)) for path, text in deep_pairs(name, value)]
        return self._pairs(name, value, encode, used_names=used_names)

    def cookie_pairs(self, name: str, value: Json, *, used_names: Container[str]) -> list[Pair]:
        return self._pairs(name, value, _cookie_octets, used_names=used_names)

    def header_value(self, name: str, value: Json) -> str | None:
        """Return the unencoded value of a header field, or None for an empty list or object.

        Raises:
            ExecutionError: an item contains a comma.
        """
        match value:
            case Mapping():
                between = "=" if self.explodes else ","
                pairs = (
                    # Without `explode`, a comma separates name and value.
                    _without(f"{key}{between}{text_of(item)}", ",", name, least=1 if between == "," else 0)
                    for key, item in _given(value)
                )
                return ",".join(pairs) or None
            case list():
                return ",".join(_without(text_of(item), ",", name) for item in value) if value else None
            case _:
                return text_of(value)

    def _pairs(self, name: str, value: Json, encode: Encode, *, used_names: Container[str]) -> list[Pair]:
        match value:
            # OpenAPI 3.1, "Style Examples": each member becomes a field.
            case Mapping() if self.explodes:
                return [(encode(_own(key, name, used_names)), encode(text_of(item))) for key, item in _given(value)]
            case Mapping():
                texts = [text for key, item in _given(value) for text in (key, text_of(item))]
                # RFC 6570 §2.3: an empty object or list is undefined.
                return [(_percent(name), self._joined(name, texts, encode))] if texts else []
            case list() if self.explodes:
                return [(_percent(name), encode(text_of(item))) for item in value]
            case list():
                return [(_percent(name), self._joined(name, list(map(text_of, value)), encode))] if value else []
            case _:
                return [(_percent(name), encode(text_of(value)))]

    def _joined(self, name: str, texts: list[str], encode: Encode) -> str:
        delimiter = _DELIMITERS.get(self.name, ",")
        if delimiter == ",":  # not encoded between items, as in RFC 6570
            return ",".join(encode(text).replace(",", "%2C") for text in texts)
        # The delimiter is encoded, so an item must not contain it.
        return _percent(delimiter).join(encode(_without(text, delimiter, name)) for text in texts)


def style_of(config: FieldStyle, *, default: str = "form") -> Style:
    name = config.style or default
    explodes = name == "form" if config.explode is None else config.explode
    return Style(name=name, explodes=explodes, allows_reserved=config.allow_reserved)


def _given(value: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    # RFC 6570 §2.3: null is undefined, and undefined members are omitted.
    return ((key, item) for key, item in value.items() if item is not None)


def deep_pairs(path: str, value: Json) -> Iterator[Pair]:
    """Yield unencoded names, such as `filter[status]`, and values of nested members. List items have an index."""
    match value:
        case None:
            return
        case Mapping() if not isinstance(value, FileArgument):
            for key, item in value.items():
                yield from deep_pairs(f"{path}[{without_brackets(key)}]", item)
        case list():
            # PHP reads indexes with gaps as keys, so null items are dropped before numbering.
            for index, item in enumerate(item for item in value if item is not None):
                yield from deep_pairs(f"{path}[{index}]", item)
        case _:
            yield path, scalar_text(value)


def scalar_text(value: Json) -> str:
    return value.base64 if isinstance(value, FileArgument) else text_of(value)


def without_brackets(key: str) -> str:
    """Return the name unchanged. Raise ExecutionError for a bracket, which would add a level of nesting."""
    if "[" in key or "]" in key:
        raise ExecutionError(f"the field name {key[:60]!r} contains a bracket, which forms and queries use for nesting")
    return key


def _own(key: str, name: str, used_names: Container[str]) -> str:
    # A caller's key must not replace a configured field. Ignore case, as some servers do.
    if key.lower() in used_names:
        raise ExecutionError(f"`{key}` cannot be a member of `{name}`, because the request has a field with that name")
    return key


def _without(text: str, delimiter: str, name: str, *, least: int = 0) -> str:
    if text.count(delimiter) > least:
        raise ExecutionError(f"an item of `{name}` contains its delimiter `{delimiter}`")
    return text
