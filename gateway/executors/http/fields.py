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
    """A header field, query field or cookie. Omitted if its value is absent."""

    name: str
    template: TextTemplate
    style: Style | None = None
    """None for plain text."""
    is_bound: bool = False

    def value(self, arguments: JsonObject) -> Json:
        """Return the value for the style, or the text. UNDEFINED if absent."""
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
    """Yield encoded names and values of a query or cookies. `written` contains names that are already set."""
    taken = {name.lower() for name in (*(written or ()), *(field.name for field in fields))}
    for field in fields:
        value = field.value(arguments)
        if value is UNDEFINED:
            continue
        style = field.style or _AS_TEXT
        yield from (style.cookie_pairs if of_cookie else style.query_pairs)(field.name, value, taken=taken)


_AS_TEXT: Final = Style(name="form", explodes=False)


_NOT_ALLOWED: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
"""RFC 9110 §5.5: no control characters except the tab. Surrogates cannot be encoded."""


def checked_value(name: str, value: str) -> str:
    if _NOT_ALLOWED.search(value):
        raise ExecutionError(f"the value for the header `{name}` contains a line break or another control character")
    # RFC 9110 §5.5: leading and trailing white space is not part of the value.
    return value.strip(" \t")


Kind = Literal["query", "headers", "cookies"]


def compile_fields(
    given: Mapping[str, RequestField], scope: Scope, *, kind: Kind, is_bound: bool = False
) -> dict[str, Field]:
    fields = {}
    for name, written in given.items():
        place = scope.at(name)
        source, at = (written.value, place.at("value")) if isinstance(written, StyledValue) else (written, place)
        field = Field(
            name=name,
            template=compile_text(source, at),
            style=_compile_style(written, kind, place) if isinstance(written, StyledValue) else None,
            # A secret can be in any field.
            is_bound=is_bound or has_secret_in(source) or name.lower() in CREDENTIALS,
        )
        if kind == "headers":
            _check_header(field, place)
        elif kind == "cookies" and not TOKEN.fullmatch(name):  # RFC 6265 §4.1.1
            place.problems.error(f"`{name}` is not a valid cookie name")
        # RFC 9110 §5.1: field names are case-insensitive.
        fields[name.lower() if kind == "headers" else name] = field
    return fields


def _compile_style(written: StyledValue, kind: Kind, scope: Scope) -> Style:
    """Header fields always use the style `simple`, and other fields never do."""
    style = style_of(written, default="simple" if kind == "headers" else "form")
    if (style.name == "simple") is not (kind == "headers"):
        place = "a header" if kind == "headers" else "a query or a cookie"
        scope.at("style").problems.error(f"the style `{style.name}` is not supported in {place}")
    return style


CREDENTIALS: Final = frozenset(
    {"authorization", "cookie", "host", "mcp-session-id", "proxy-authorization", "x-api-key"}
)
"""Never forwarded from the caller or sent to another origin."""
FRAMING: Final = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"}
    | {"upgrade"}
)
"""RFC 9110 §7.6.1, RFC 9112 §6: fields for one connection, set by the client library."""
TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110 §5.6.2: a field name is a token."""


def _check_header(field: Field, scope: Scope) -> None:
    if not TOKEN.fullmatch(field.name):
        scope.problems.error(f"`{field.name}` is not a valid header name")
    elif field.name.lower() in FRAMING:
        scope.problems.error(f"`{field.name}` is set by the gateway")
    if field.template.literal is not None and _NOT_ALLOWED.search(field.template.literal):
        scope.problems.error("a header value must not contain line breaks or other control characters")


def has_secret_in(value: Json) -> bool:
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
