"""Parses, checks and expands URI templates (RFC 6570).

The package `uritemplate` accepts malformed templates, so they are checked here. It also leaves `%41` in the value of
`{+var}` and `{#var}` unencoded, so these two forms are derived from the expansion of `{var}`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import quote

import msgspec
import uritemplate
from uritemplate.variable import VariableValueDict

from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.models.interpolated_text import Interpolation, parts_of
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_inputs import accepts_only_files
from gateway.language.schemas.normalization import EXACT_INTEGERS
from gateway.language.scope import Scope
from gateway.language.templates.caller import is_fact_path, use_fact_path, variable
from gateway.language.templates.render_state import text_of

RESERVED: Final = ":/?#[]@!$&'()*+,;="
"""The reserved characters of URIs (RFC 3986 §2.2)."""

_OPERATORS: Final = "+#./;?&"
_VARIABLE: Final = re.compile(r"(?P<name>(?:[A-Za-z0-9_]\.?)*[A-Za-z0-9_])(?P<modifier>\*|:[1-9]\d{0,3})?")
"""Matches a variable with a modifier (RFC 6570 §2.3, §2.4). Names of inputs cannot be percent-encoded."""

LONE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

_JINJA: Final = re.compile(r"\{[{%]-?\s*(?P<name>[A-Za-z_]\w*)?")
_NOT_IN_A_URI: Final = re.compile(r'[\x00-\x20\x7f"<>\\^`|]|' + LONE_PERCENT.pattern)
"""Characters that RFC 6570 §2.1 excludes from literals. `'` is allowed, according to erratum 6937."""


class UriTemplateError(Exception):
    """A URI template is malformed or not supported."""


class UriExpression(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    operator: str
    names: tuple[str, ...]
    has_modifier: bool
    """Whether a variable is exploded (`*`) or has a prefix (`:3`)."""


Part = str | UriExpression
"""A part of a URI template: percent-encoded literal text, or an expression."""


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
            raise UriTemplateError(f"{_at(start)}: URLs cannot contain Jinja. Write `{{{name}}}` here")
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
        raise UriTemplateError(f"{_at(wrong.start())}: `{wrong[0]}` is not allowed in a URI. Write {encoded}")
    return _encoded(text[start:end])


def _encoded(text: str) -> str:
    # RFC 6570 §3.1: percent-encoded octets are copied.
    return quote(text, safe=RESERVED + "%")


def _expression(source: str, start: int) -> UriExpression:
    body = source[1:-1]
    operator = body[:1] if body[:1] in _OPERATORS else ""
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


Expand = Callable[[JsonObject], str]
"""Expands a URI template. Missing and null variables are undefined (RFC 6570 §2.3)."""


class Expansion:
    """A compiled expression of a URI template. In `{+var}` and `{#var}`, characters in `kept` are not encoded."""

    __slots__ = ("_kept", "_lead", "_single", "_template", "expression", "names")

    def __init__(self, expression: UriExpression, *, kept: str = RESERVED) -> None:
        self.expression = expression
        self.names = frozenset(expression.names)
        is_reserved = expression.operator in {"+", "#"}
        self._kept = _encoded_forms(kept) if is_reserved else None
        self._lead = "#" if expression.operator == "#" else ""
        source = expression.source.replace(expression.operator, "", 1) if is_reserved else expression.source
        self._template = uritemplate.URITemplate(source)
        is_simple = not expression.operator and len(expression.names) == 1 and not expression.has_modifier
        self._single = expression.names[0] if is_simple else None

    def expand(self, variables: JsonObject) -> str:
        if self._single is not None and isinstance(value := variable(self._single, variables), str):
            # RFC 6570 §3.2.2. The check avoids most calls of `quote`.
            return value if value.isascii() and value.isalnum() else quote(value, safe="")
        values = {name: _value(variable(name, variables)) for name in self.names}
        given: VariableValueDict = {name: value for name, value in values.items() if value is not None}
        text = self._template.expand(given)
        if self._kept is None:
            return text
        # RFC 6570 §3.2.1: without defined variables, the `#` is omitted too.
        return (self._lead if given else "") + self._kept.sub(lambda match: chr(int(match[0][1:], 16)), text)


def compile_uri_template(source: str, scope: Scope) -> Expand:
    """Compile a template whose variables are names in `scope`. Errors are reported."""
    return expansion_of(parse_in_scope(source, scope))


def expansion_of(parts: Iterable[Part]) -> Expand:
    compiled = [part if isinstance(part, str) else Expansion(part) for part in parts]
    return lambda variables: "".join([part if isinstance(part, str) else part.expand(variables) for part in compiled])


def parse_in_scope(source: str, scope: Scope) -> tuple[Part, ...]:
    """Parse a template and check its variables. If a variable is unknown or the syntax is invalid, return no parts."""
    try:
        parts = parse_uri_template(source)
    except UriTemplateError as error:
        scope.problems.error(str(error))
        return ()
    known = scope.inputs.schemas.keys() | scope.names
    facts = [name for name in names_in(parts) if is_fact_path(name)]
    for name in facts:
        use_fact_path(name, scope)
    unknown = [name for name in names_in(parts) if name not in known and name not in facts]
    scope.used.update(known.intersection(names_in(parts)))
    there_is = f"; available: {', '.join(sorted(known)) or 'none'}"
    for name in unknown:
        scope.problems.error(f"`{name}` is not an input{did_you_mean(name, sorted(known)) or there_is}")
    for name in names_in(parts):
        if scope.inputs.has_files and accepts_only_files(scope.inputs.schemas.get(name, {})):
            scope.problems.error(f"`{name}` is a file, which is not allowed in a URI")
    return () if unknown else parts


def _encoded_forms(kept: str) -> re.Pattern[str]:
    """Return a pattern that matches the percent-encoded forms of the characters in `kept`."""
    # RFC 6570 §3.2.3 keeps percent-encoded octets in values. In URLs, `%` is encoded again for security.
    triplet = "|25(?=[0-9A-Fa-f]{2})" if kept == RESERVED else ""
    return re.compile("%(?:" + "|".join(f"{ord(character):02X}" for character in kept) + triplet + ")")


def _value(value: Json) -> str | list[str] | dict[str, str] | None:
    """Convert a JSON value to a string, a list of strings or a map of strings (RFC 6570 §2.3).

    Lists and objects inside a list or an object become compact JSON.
    """
    match value:
        case None:
            return None
        case list():
            return [_text(item) for item in value if item is not None]
        case dict():
            return {key: _text(item) for key, item in value.items() if item is not None}
        case _:
            return _text(value)


def _text(value: Json) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT_INTEGERS:
        return str(int(value))
    return text_of(value)
