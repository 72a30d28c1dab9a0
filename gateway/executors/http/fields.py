"""Fields of a request: header fields, query fields and cookies, each a template with a style."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from gateway.config.models.backends import RequestField, StyledValue
from gateway.config.models.http_bodies import FileBody, Part
from gateway.config.models.interpolated_text import Interpolation, parts_of
from gateway.errors import ExecutionError
from gateway.executors.http.styles import Pair, Style, style_of
from gateway.json_types import Json, JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.render_state import UNDEFINED
from gateway.language.templates.templating import TextTemplate, compile_text


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A header or query field, or a cookie; it is left out where its value is absent."""

    name: str
    template: TextTemplate
    style: Style | None = None
    """None: the value is text."""
    is_bound: bool = False

    def value(self, arguments: JsonObject) -> Json:
        """The value for its style, or the text; UNDEFINED where that is absent."""
        if self.style is not None:
            return self.template.value(arguments)
        text = self.template.render_element(arguments)
        return UNDEFINED if text is None else text

    def header_value(self, arguments: JsonObject) -> str | None:
        value = self.value(arguments)
        if value is UNDEFINED:
            return None
        return value if self.style is None else self.style.header_value(self.name, value)


def pairs_of(
    fields: Sequence[Field], arguments: JsonObject, *, written: set[str] | None = None, of_cookie: bool = False
) -> Iterator[Pair]:
    """The encoded names and values of a query's fields, or of cookies; `written` are names that the URL has already."""
    taken = {name.lower() for name in (*(written or ()), *(field.name for field in fields))}
    for field in fields:
        value = field.value(arguments)
        if value is UNDEFINED:
            continue
        style = field.style or _AS_TEXT
        yield from (style.cookie_pairs if of_cookie else style.query_pairs)(field.name, value, taken=taken)


_AS_TEXT: Final = Style(name="form", explodes=False)


_BREAKS_A_FIELD: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
"""RFC 9110 §5.5: a field value holds no control character but the tab. Half a surrogate pair cannot be written."""


def checked_value(name: str, value: str) -> str:
    if _BREAKS_A_FIELD.search(value):
        raise ExecutionError(f"the value for the header `{name}` holds a line break or another control character")
    # RFC 9110 §5.5: whitespace at either end is no part of a field value.
    return value.strip(" \t")


Kind = Literal["query", "headers", "cookies"]


def compile_fields(
    given: Mapping[str, RequestField], scope: Scope, *, kind: Kind, is_bound: bool = False
) -> dict[str, Field]:
    """Compile the fields at whose mapping `scope` stands, by what tells them apart; mistakes are reported."""
    fields = {}
    for name, written in given.items():
        place = scope.at(name)
        source, at = (written.value, place.at("value")) if isinstance(written, StyledValue) else (written, place)
        field = Field(
            name=name,
            template=compile_text(source, at),
            style=_compile_style(written, kind, place) if isinstance(written, StyledValue) else None,
            # Known by its place, its value or its name: an operator may write a key anywhere.
            is_bound=is_bound or has_secret_in(source) or name.lower() in CREDENTIALS,
        )
        if kind == "headers":
            _check_header(field, place)
        elif kind == "cookies" and not TOKEN.fullmatch(name):  # RFC 6265 §4.1.1
            place.problems.error(f"`{name}` is not the name of a cookie")
        # RFC 9110 §5.1: the names of header fields ignore case; those of cookies and of a query do not.
        fields[name.lower() if kind == "headers" else name] = field
    return fields


def _compile_style(written: StyledValue, kind: Kind, scope: Scope) -> Style:
    """The style of a field, which header fields (`simple`) and all others share none of."""
    style = style_of(written, default="simple" if kind == "headers" else "form")
    if (style.name == "simple") is not (kind == "headers"):
        place = "a header" if kind == "headers" else "a query or a cookie"
        scope.at("style").problems.error(f"`{style.name}` is no style of {place}")
    return style


CREDENTIALS: Final = frozenset(
    {"authorization", "cookie", "host", "mcp-session-id", "proxy-authorization", "x-api-key"}
)
"""Never carried to another origin, and never taken from the caller: they are addressed to this daemon."""
FRAMING: Final = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"}
    | {"upgrade"}
)
"""RFC 9110 §7.6.1, RFC 9112 §6: these say how one connection is used, which the client library knows."""
TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110 §5.6.2: a field name is a token."""


def _check_header(field: Field, scope: Scope) -> None:
    if not TOKEN.fullmatch(field.name):
        scope.problems.error(f"`{field.name}` is not the name of a header")
    elif field.name.lower() in FRAMING:
        scope.problems.error(f"`{field.name}` is set by the gateway")
    if field.template.literal is not None and _BREAKS_A_FIELD.search(field.template.literal):
        scope.problems.error("a header holds no line break and no other control character")


def has_secret_in(value: Json) -> bool:
    """Whether an interpolation somewhere in `value` brought a secret."""
    match value:
        case str():
            return any(isinstance(part, Interpolation) and part.secret for part in parts_of(value))
        case list():
            return any(map(has_secret_in, value))
        case Mapping():
            return any(map(has_secret_in, value.values()))
        case Part() | FileBody():
            return any(has_secret_in(getattr(value, name)) for name in type(value).model_fields)
        case _:
            return False
