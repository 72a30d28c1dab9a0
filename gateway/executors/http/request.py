"""The request of an HTTP backend: compiled from the file, filled in at each call. Sends nothing.

A value is data in every part: it is percent-encoded in the URL, encoded in the body, and refused in a header field that
it would break out of.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import replace
from yarl import URL

from gateway.config.models.backends import Connection, Http
from gateway.config.models.interpolated_text import Interpolation, parts_of
from gateway.errors import ExecutionError
from gateway.executors.invocation import Invocation
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.render_state import json_of
from gateway.language.templates.templating import JsonTemplate, TextTemplate, compile_json, compile_text
from gateway.language.uris.urls import UrlTemplate, base_url_problem, compile_url


class Header(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str
    is_bound: bool
    """Whether it is meant for the request's own origin alone, and is not carried to another by a redirect."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request, ready to be sent."""

    method: str
    url: URL
    headers: tuple[Header, ...]
    body: bytes | None = None
    has_secret_body: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Identifies the request: equal only for two that are the same."""
        return self.method, str(self.url), self.headers, self.body


class RequestTemplate(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    url: UrlTemplate
    fixed_url: URL | None
    """The URL of every request, if no part of it or of the query comes from a call."""
    query: "tuple[_Field, ...]"
    headers: "tuple[_Field, ...]"
    forwarded: tuple[str, ...]
    """Names of the caller's header fields that are passed on."""
    body: "_Body | None"

    def render(self, invocation: Invocation) -> Request:
        """Fill in the arguments.

        Raises:
            ExecutionError: a value cannot stand where it would; the text names the place.
        """
        arguments = invocation.arguments
        body = self.body.render(arguments) if self.body else None
        headers = self._headers(invocation)
        if self.body is not None and body is not None and "content-type" not in headers:
            headers["content-type"] = Header(name="Content-Type", value=self.body.media_type, is_bound=False)
        return Request(
            method=self.method,
            url=self.fixed_url or _url(self.url, self.query, arguments),
            headers=tuple(headers.values()),
            body=body,
            has_secret_body=self.body is not None and self.body.has_secret,
        )

    def _headers(self, invocation: Invocation) -> dict[str, Header]:
        """Header fields by name in lower case: forwarded ones of the caller, and over them those of the file."""
        headers = {
            name.lower(): Header(name=name, value=_checked(name, value), is_bound=True)
            for name in self.forwarded
            if (value := invocation.headers.get(name.lower())) is not None
        }
        for field in self.headers:
            value = field.template.render_element(invocation.arguments)
            if value is not None:
                headers[field.name.lower()] = Header(
                    name=field.name, value=_checked(field.name, value), is_bound=field.is_bound
                )
        return headers


def _url(template: UrlTemplate, query: "tuple[_Field, ...]", arguments: JsonObject) -> URL:
    text = template.expand(arguments)
    if query:
        pairs = _rendered(query, arguments)
        text += ("&" if "?" in text else "?") + urlencode(pairs, quote_via=quote, safe="") if pairs else ""
    try:
        return URL(text, encoded=True)
    except ValueError as error:
        raise ExecutionError(f"the URL is not valid: {error}") from error


class _Field(msgspec.Struct, frozen=True, kw_only=True):
    """A header, query or form field; it is left out where its value is absent."""

    name: str
    template: TextTemplate
    is_bound: bool = False


def _rendered(fields: Sequence[_Field], arguments: JsonObject) -> list[tuple[str, str]]:
    return [(field.name, value) for field in fields if (value := field.template.render_element(arguments)) is not None]


_BREAKS_A_FIELD: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
"""RFC 9110 §5.5: a field value holds no control character but the tab. Half a surrogate pair cannot be written."""


def _checked(name: str, value: str) -> str:
    if _BREAKS_A_FIELD.search(value):
        raise ExecutionError(f"the value for the header `{name}` holds a line break or another control character")
    return value.strip(" \t")


class _Body(Protocol):
    @property
    def media_type(self) -> str: ...
    @property
    def has_secret(self) -> bool: ...
    def render(self, arguments: JsonObject) -> bytes | None: ...


class _JsonBody(msgspec.Struct, frozen=True, kw_only=True):
    template: JsonTemplate
    has_secret: bool
    media_type: str = "application/json"

    def render(self, arguments: JsonObject) -> bytes | None:
        value = self.template.render(arguments)
        return None if value is ABSENT else json_of(value).encode()


class _FormBody(msgspec.Struct, frozen=True, kw_only=True):
    fields: tuple[_Field, ...]
    has_secret: bool
    media_type: str = "application/x-www-form-urlencoded"

    def render(self, arguments: JsonObject) -> bytes | None:
        return urlencode(_rendered(self.fields, arguments)).encode()


class _TextBody(msgspec.Struct, frozen=True, kw_only=True):
    template: TextTemplate
    has_secret: bool
    media_type: str = "text/plain; charset=utf-8"

    def render(self, arguments: JsonObject) -> bytes | None:
        return self.template.render(arguments).encode()


def compile_request(config: Http, *, connection: tuple[str, Connection] | None, scope: Scope) -> RequestTemplate:
    """Compile the request of an `http:` block; mistakes go to the problems of `scope`, or of the connection's place."""
    query, headers = _Fields(), _Fields()
    base_url = None
    if connection is not None:
        name, shared = connection
        beside = replace(scope, problems=scope.problems.root.at("connections", name))
        base_url = shared.base_url if base_url_problem(shared.base_url) is None else "https://invalid"
        query.add(shared.query, beside.at("query"))
        headers.add(shared.headers, beside.at("headers"), check=_check_header, is_bound=True)
    query.add(config.query, scope.at("query"))
    headers.add(config.headers, scope.at("headers"), check=_check_header)
    url = compile_url(config.url, base_url=base_url, scope=scope.at("url"))
    return RequestTemplate(
        method=config.method or ("GET" if config.body_kind is None else "POST"),
        url=url,
        fixed_url=_fixed_url(url, query.merged),
        query=query.merged,
        headers=headers.merged,
        forwarded=_compile_forwarded(config.forward_headers, scope.at("forward_headers")),
        body=_compile_body(config, scope),
    )


def _fixed_url(url: UrlTemplate, query: "tuple[_Field, ...]") -> URL | None:
    """The URL that every call sends its request to, if there is one."""
    is_literal = all(isinstance(part, str) for part in (*url.authority, *url.path, *url.query))
    if not is_literal or any(field.template.literal is None for field in query):
        return None
    try:
        return _url(url, query, {})
    except ExecutionError:  # each call says so
        return None


class _Fields:
    """Compiles fields; a later one takes the place of an earlier one of the same name, whatever its case."""

    def __init__(self) -> None:
        self._fields: dict[str, _Field] = {}

    @property
    def merged(self) -> tuple[_Field, ...]:
        return tuple(self._fields.values())

    def add(
        self,
        given: Mapping[str, str],
        scope: Scope,
        *,
        check: "Callable[[_Field, Scope], None] | None" = None,
        is_bound: bool = False,
    ) -> None:
        for name, source in given.items():
            template = compile_text(source, scope.at(name))
            is_secret = is_bound or _has_secret(source) or name.lower() in _CREDENTIALS
            field = _Field(name=name, template=template, is_bound=is_secret)
            if check is not None:
                check(field, scope.at(name))
            self._fields[name.lower() if check else name] = field


_CREDENTIALS: Final = frozenset(
    {"authorization", "cookie", "host", "mcp-session-id", "proxy-authorization", "x-api-key"}
)
"""Never carried to another origin, and never taken from the caller: they are addressed to this daemon."""
_FRAMING: Final = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"}
    | {"upgrade"}
)
"""RFC 9110 §7.6.1, RFC 9112 §6: these say how one connection is used, which the client library knows."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110 §5.6.2: a field name is a token."""


def _check_header(field: _Field, scope: Scope) -> None:
    if not _TOKEN.fullmatch(field.name):
        scope.problems.error(f"`{field.name}` is not the name of a header")
    elif field.name.lower() in _FRAMING:
        scope.problems.error(f"`{field.name}` is set by the gateway")
    if field.template.literal is not None and _BREAKS_A_FIELD.search(field.template.literal):
        scope.problems.error("a header holds no line break and no other control character")


def _compile_forwarded(names: Sequence[str], scope: Scope) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if not _TOKEN.fullmatch(name) or name == "*":  # a token, and meant as a wildcard, which there is not
            scope.at(index).problems.error(f"`{name}` is not the name of a header")
        elif name.lower() in _CREDENTIALS | _FRAMING:
            scope.at(index).problems.error(f"`{name}` is meant for this daemon alone and cannot be forwarded")
    return tuple(names)


def _compile_body(config: Http, scope: Scope) -> _Body | None:
    match config.body_kind:
        case "json_":
            template = compile_json(config.json_, scope.at("json"))
            return _JsonBody(template=template, has_secret=_has_secret(config.json_))
        case "form":
            fields = _Fields()
            fields.add(config.form or {}, scope.at("form"))
            return _FormBody(fields=fields.merged, has_secret=_has_secret(config.form))
        case "body":
            source = config.body or ""
            return _TextBody(template=compile_text(source, scope.at("body")), has_secret=_has_secret(source))
        case None:
            return None


def _has_secret(value: Json) -> bool:
    """Whether an interpolation somewhere in `value` brought a secret."""
    match value:
        case str():
            return any(isinstance(part, Interpolation) and part.secret for part in parts_of(value))
        case list():
            return any(map(_has_secret, value))
        case Mapping():
            return any(map(_has_secret, value.values()))
        case _:
            return False
