"""Builds the requests of HTTP backends.

Values are encoded in URLs and bodies. In header fields, values that contain line breaks are rejected.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal
from urllib.parse import parse_qsl

import msgspec
from yarl import URL

from gateway.config.models.backends import Connection, Http, RequestField, StyledValue
from gateway.config.models.http_bodies import FileBody, Part
from gateway.config.models.interpolated_text import Interpolation, parts_of
from gateway.errors import ExecutionError
from gateway.executors.http.bodies import BodyTemplate, compile_body
from gateway.executors.http.styles import Pair, Style, style_of
from gateway.executors.invocation import Invocation
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.templating import TextTemplate, compile_text, has_expressions
from gateway.language.uris.urls import UrlTemplate, base_url_problem, compile_url
from gateway.net.request import Header, Request, parse_url


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A header field, query field or cookie. The request omits a field whose value is absent."""

    name: str
    template: TextTemplate
    style: Style | None = None
    is_bound: bool = False

    def value(self, arguments: JsonObject) -> Json:
        """Return JSON if the field has a style, otherwise text. Return ABSENT if the value is absent."""
        if self.style is not None:
            return self.template.value(arguments)
        text = self.template.render_element(arguments)
        return ABSENT if text is None else text

    def header_value(self, arguments: JsonObject) -> str | None:
        value = self.value(arguments)
        if value is ABSENT:
            return None
        return value if self.style is None else self.style.header_value(self.name, value)


def pairs_of(
    fields: Sequence[Field], arguments: JsonObject, *, written: set[str], of_cookie: bool = False
) -> Iterator[Pair]:
    """Yield the encoded names and values of query fields or cookies. `written` contains names that are already set."""
    used_names = {name.lower() for name in (*written, *(field.name for field in fields))}
    for field in fields:
        value = field.value(arguments)
        if value is ABSENT:
            continue
        style = field.style or _AS_TEXT
        yield from (style.cookie_pairs if of_cookie else style.query_pairs)(field.name, value, used_names=used_names)


_AS_TEXT: Final = Style(name="form", explodes=False)


_NOT_ALLOWED: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
"""Control characters, which a header value must not contain (RFC 9110 §5.5), and surrogates."""


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
            # Bound fields are never sent to another origin.
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
    style = style_of(written, default="simple" if kind == "headers" else "form")
    if (style.name == "simple") is not (kind == "headers"):
        place = "a header" if kind == "headers" else "a query or a cookie"
        scope.at("style").problems.error(f"the style `{style.name}` is not supported in {place}")
    return style


CREDENTIALS: Final = frozenset(
    {"authorization", "cookie", "host", "mcp-session-id", "proxy-authorization", "x-api-key"}
)
"""Header fields that are never forwarded from the caller or sent to another origin."""
FRAMING: Final = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"}
    | {"upgrade"}
)
"""Header fields that describe a single connection. The HTTP client sets them (RFC 9110 §7.6.1, RFC 9112 §6)."""
TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Matches a token, such as the name of a header field (RFC 9110 §5.6.2)."""


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


class RequestTemplate(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    url: UrlTemplate
    query: tuple[Field, ...]
    headers: tuple[Field, ...]
    cookies: tuple[Field, ...]
    forwarded: tuple[str, ...]
    body: BodyTemplate | None
    has_secret_body: bool
    reads_files: bool
    """Whether `render` reads files that the configuration names."""

    def render(self, invocation: Invocation) -> Request:
        """Build the request of a call.

        Raises:
            ExecutionError: a value is not allowed at its position in the request.
        """
        arguments = invocation.variables
        body, media_type, summary = (None if self.body is None else self.body(arguments)) or (None, "", None)
        headers = self._headers(invocation)
        if body is not None and "content-type" not in headers:
            headers["content-type"] = Header(name="Content-Type", value=media_type, is_bound=False)
        return Request(
            method=self.method,
            url=_url(self.url, self.query, arguments),
            headers=tuple(headers.values()),
            body=body,
            body_summary=summary,
            has_secret_body=self.has_secret_body,
        )

    def _headers(self, invocation: Invocation) -> dict[str, Header]:
        headers = {
            name.lower(): Header(name=name, value=checked_value(name, value), is_bound=True)
            for name in self.forwarded
            if (value := invocation.call.caller.headers.get(name.lower())) is not None
        }
        for field in self.headers:  # replace forwarded fields
            value = field.header_value(invocation.variables)
            if value is not None:
                headers[field.name.lower()] = Header(
                    name=field.name, value=checked_value(field.name, value), is_bound=field.is_bound
                )
        if self.cookies and (cookies := self._cookies(invocation.variables, headers.get("cookie"))):
            # RFC 6265 §5.4: a request has at most one Cookie field.
            sent = [headers["cookie"].value, *cookies] if "cookie" in headers else cookies
            headers["cookie"] = Header(name="Cookie", value=checked_value("Cookie", "; ".join(sent)), is_bound=True)
        return headers

    def _cookies(self, arguments: JsonObject, sent: Header | None) -> list[str]:
        written = set() if sent is None else {each.partition("=")[0].strip() for each in sent.value.split(";")}
        pairs = pairs_of(self.cookies, arguments, written=written, of_cookie=True)
        return [f"{name}={value}" for name, value in pairs]


def _url(template: UrlTemplate, query: tuple[Field, ...], arguments: JsonObject) -> URL:
    text = template.expand(arguments)
    if query:
        written = {name for name, _ in parse_qsl(text.partition("?")[2], keep_blank_values=True)}
        pairs = "&".join(f"{name}={value}" for name, value in pairs_of(query, arguments, written=written))
        text += ("&" if "?" in text else "?") + pairs if pairs else ""
    try:
        # Without `encoded`, yarl resolves `%2e%2e`, and a value could leave its path segment.
        return parse_url(text, encoded=True)
    except ValueError as error:
        raise ExecutionError(f"the URL is not valid: {error}") from error


def compile_request(
    config: Http, shared: Connection | None, *, scope: Scope, connection_scope: Scope
) -> RequestTemplate:
    """Compile the request of an `http:` block with its shared connection, if any.

    Problems of the connection are reported at `connection_scope`, and all others at `scope`.
    """
    query, headers, base_url = {}, {}, None
    if shared is not None:
        base_url = shared.base_url if base_url_problem(shared.base_url) is None else "https://invalid"
        query = compile_fields(shared.query, connection_scope.at("query"), kind="query")
        # Bound fields are not sent to other origins after a redirect.
        headers = compile_fields(shared.headers, connection_scope.at("headers"), kind="headers", is_bound=True)
    query |= compile_fields(config.query, scope.at("query"), kind="query")
    headers |= compile_fields(config.headers, scope.at("headers"), kind="headers")
    for name in config.headers if config.multipart is not None else ():
        if name.lower() == "content-type":  # a configured value would not contain the boundary
            scope.at("headers", name).problems.error("is set by `multipart`, with a new boundary for each request")
    cookies = compile_fields(config.cookies, scope.at("cookies"), kind="cookies")
    url = compile_url(config.url, base_url=base_url, scope=scope.at("url"))
    return RequestTemplate(
        method=config.method or ("GET" if config.body_kind is None else "POST"),
        url=url,
        query=tuple(query.values()),
        headers=tuple(headers.values()),
        cookies=tuple(cookies.values()),
        forwarded=_compile_forwarded(config.forward_headers, scope.at("forward_headers")),
        body=compile_body(config, scope),
        has_secret_body=any(map(has_secret_in, (config.json_, config.form, config.multipart, config.body))),
        reads_files=any(not has_expressions(file) for file in _files_of(config)),
    )


def _files_of(config: Http) -> Iterator[str]:
    if isinstance(config.body, FileBody):
        yield config.body.file
    for field in (config.multipart or {}).values():
        for part in field if isinstance(field, list) else [field]:
            if isinstance(part, Part) and part.file is not None:
                yield part.file


def _compile_forwarded(names: Sequence[str], scope: Scope) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if not TOKEN.fullmatch(name) or name == "*":  # `*` is a token, but wildcards are not supported
            scope.at(index).problems.error(f"`{name}` is not a valid header name")
        elif name.lower() in CREDENTIALS | FRAMING:
            scope.at(index).problems.error(
                f"`{name}` cannot be forwarded: it is a credential for this daemon, or belongs to one connection"
            )
    return tuple(names)
