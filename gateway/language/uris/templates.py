"""Expands URI templates (RFC 6570) with the package `uritemplate`.

`{+var}` and `{#var}` are derived from the simple form, because the package does not encode `%` in `%41`.
"""

import re
from collections.abc import Callable, Iterable
from urllib.parse import quote

import uritemplate
from uritemplate.variable import VariableValueDict

from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_inputs import holds_files_alone
from gateway.language.schemas.normalization import EXACT_INTEGERS
from gateway.language.scope import Scope
from gateway.language.templates.caller import is_fact_path, use_fact_path, variable
from gateway.language.templates.render_state import text_of
from gateway.language.uris.grammar import (
    RESERVED,
    Part,
    UriExpression,
    UriTemplateError,
    names_in,
    parse_uri_template,
)

Expand = Callable[[JsonObject], str]
"""Expands a URI template. Missing and null variables are undefined (RFC 6570 §2.3)."""


class Expansion:
    """A compiled expression. In `{+var}` and `{#var}`, characters in `kept` are not encoded."""

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
        if scope.inputs.has_files and holds_files_alone(scope.inputs.schemas.get(name, {})):
            scope.problems.error(f"`{name}` is a file, which is not allowed in a URI")
    return () if unknown else parts


def _encoded_forms(kept: str) -> re.Pattern[str]:
    """Return a pattern that matches the percent-encoded forms of the characters in `kept`."""
    # RFC 6570 §3.2.3 keeps percent-encoded octets in values. In URLs, `%` is encoded again for security.
    triplet = "|25(?=[0-9A-Fa-f]{2})" if kept == RESERVED else ""
    return re.compile("%(?:" + "|".join(f"{ord(character):02X}" for character in kept) + triplet + ")")


def _value(value: Json) -> str | list[str] | dict[str, str] | None:
    """Convert a value to a type of RFC 6570 §2.3. Values that are nested deeper become compact JSON."""
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
