"""Parses and validates URI templates (RFC 6570). The package `uritemplate` accepts malformed templates."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import quote

import msgspec

from gateway.config.models.interpolated_text import Interpolation, parts_of

RESERVED: Final = ":/?#[]@!$&'()*+,;="
"""RFC 3986 §2.2: gen-delims and sub-delims."""

_OPERATORS: Final = "+#./;?&"
# RFC 6570 §2.2: reserved for extensions.
_FUTURE_OPERATORS: Final = "=,!@|"
_VARIABLE: Final = re.compile(r"(?P<name>(?:[A-Za-z0-9_]\.?)*[A-Za-z0-9_])(?P<modifier>\*|:[1-9]\d{0,3})?")
"""RFC 6570 §2.3 and §2.4, without percent-encoded names, which inputs cannot have."""

LONE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

_JINJA: Final = re.compile(r"\{[{%]-?\s*(?P<name>[A-Za-z_]\w*)?")
_NOT_IN_A_URI: Final = re.compile(r'[\x00-\x20\x7f"<>\\^`|]|' + LONE_PERCENT.pattern)
"""Characters that RFC 6570 §2.1 excludes, except `'`, which erratum 6937 allows."""


class UriTemplateError(Exception):
    """A URI template is malformed or not supported."""


class UriExpression(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    operator: str
    names: tuple[str, ...]
    has_modifier: bool
    """Whether a variable is exploded (`*`) or has a prefix (`:3`)."""


Part = str | UriExpression
"""Percent-encoded literal text, or an expression."""


def parse_uri_template(source: str) -> tuple[Part, ...]:
    """Split a template into literals and expressions. Interpolated text is literal.

    Raises:
        UriTemplateError: the template is malformed.
    """
    return _parsed(parts_of(source))


@lru_cache(maxsize=4096)
def _parsed(parts: tuple[str | Interpolation, ...]) -> tuple[Part, ...]:
    merged: list[Part] = []
    for part in _parse(parts):
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part:
            merged.append(part)
    return tuple(merged)


def names_in(parts: Sequence[Part]) -> list[str]:
    """Return the names of all variables in order, including repetitions."""
    return [name for part in parts if isinstance(part, UriExpression) for name in part.names]


def _parse(parts: tuple[str | Interpolation, ...]) -> Iterator[Part]:
    for text in parts:
        if isinstance(text, Interpolation):
            # Interpolated text can contain a lone `%`.
            yield _encoded(LONE_PERCENT.sub("%25", text.text))
        else:
            yield from _parse_text(text)


def _parse_text(text: str) -> Iterator[Part]:
    position = 0
    while (start := text.find("{", position)) >= 0:
        yield _literal(text, position, start)
        if jinja := _JINJA.match(text, start):
            name = jinja["name"] or "id"
            raise UriTemplateError(f"{_at(start)}: URLs cannot contain Jinja; write `{{{name}}}` here")
        end = text.find("}", start)
        if end < 0:
            raise UriTemplateError(f"{_at(start)}: `{{` without `}}`; write a literal brace as %7B")
        yield _expression(text[start : end + 1], start)
        position = end + 1
    yield _literal(text, position, len(text))


def _at(index: int) -> str:
    return f"character {index + 1}"


def _literal(text: str, start: int, end: int) -> str:
    if (brace := text.find("}", start, end)) >= 0:
        raise UriTemplateError(f"{_at(brace)}: `}}` without `{{`; write a literal brace as %7D")
    if wrong := _NOT_IN_A_URI.search(text, start, end):
        encoded = quote(wrong[0], safe="")
        raise UriTemplateError(f"{_at(wrong.start())}: `{wrong[0]}` is not allowed in a URI; write {encoded}")
    return _encoded(text[start:end])


def _encoded(text: str) -> str:
    # RFC 6570 §3.1: percent-encoded octets are copied.
    return quote(text, safe=RESERVED + "%")


def _expression(source: str, start: int) -> UriExpression:
    body = source[1:-1]
    operator = body[:1] if body[:1] in _OPERATORS else ""
    if body[:1] and body[0] in _FUTURE_OPERATORS:
        raise UriTemplateError(
            f"{_at(start + 1)}: `{body[0]}` is not an operator of RFC 6570; use one of {' '.join(_OPERATORS)}"
        )
    variables = [_variable(text, start) for text in body.removeprefix(operator).split(",")]
    return UriExpression(
        source=source,
        operator=operator,
        names=tuple(each["name"] for each in variables),
        has_modifier=any(each["modifier"] for each in variables),
    )


def _variable(text: str, start: int) -> re.Match[str]:
    match = _VARIABLE.fullmatch(text)
    if match is None:
        raise UriTemplateError(
            f"{_at(start)}: `{text}` is not a variable; expected a name of letters, digits and `_`, such as {{id}}"
        )
    return match
