"""The request of an HTTP backend: compiled from the file, filled in at each call. Sends nothing.

A value is data in every part: it is percent-encoded in the URL, encoded in the body, and refused in a header field that
it would break out of.
"""

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import parse_qsl, urlencode

import msgspec
from msgspec.structs import replace
from yarl import URL

from gateway.config.models.backends import Connection, Http
from gateway.errors import ExecutionError
from gateway.executors.http.fields import (
    CREDENTIALS,
    FRAMING,
    TOKEN,
    Field,
    Fields,
    check_cookie,
    check_header,
    checked_value,
    has_secret_in,
    pairs_of,
    texts_of,
)
from gateway.executors.invocation import Invocation
from gateway.json_types import ABSENT, JsonObject
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
    query: tuple[Field, ...]
    headers: tuple[Field, ...]
    cookies: tuple[Field, ...]
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
            name.lower(): Header(name=name, value=checked_value(name, value), is_bound=True)
            for name in self.forwarded
            if (value := invocation.headers.get(name.lower())) is not None
        }
        for field in self.headers:
            value = field.header_value(invocation.arguments)
            if value is not None:
                headers[field.name.lower()] = Header(
                    name=field.name, value=checked_value(field.name, value), is_bound=field.is_bound
                )
        if cookies := [
            f"{name}={value}" for name, value in pairs_of(self.cookies, invocation.arguments, of_cookie=True)
        ]:
            sent = [headers["cookie"].value, *cookies] if "cookie" in headers else cookies
            headers["cookie"] = Header(name="Cookie", value=checked_value("Cookie", "; ".join(sent)), is_bound=True)
        return headers


def _url(template: UrlTemplate, query: tuple[Field, ...], arguments: JsonObject) -> URL:
    text = template.expand(arguments)
    if query:
        written = {name for name, _ in parse_qsl(text.partition("?")[2], keep_blank_values=True)}
        pairs = "&".join(f"{name}={value}" for name, value in pairs_of(query, arguments, written=written))
        text += ("&" if "?" in text else "?") + pairs if pairs else ""
    try:
        return URL(text, encoded=True)
    except ValueError as error:
        raise ExecutionError(f"the URL is not valid: {error}") from error


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
    is_optional: bool = False

    def render(self, arguments: JsonObject) -> bytes | None:
        value = self.template.render(arguments)
        return None if value is ABSENT or (self.is_optional and value == {}) else json_of(value).encode()


class _FormBody(msgspec.Struct, frozen=True, kw_only=True):
    fields: tuple[Field, ...]
    has_secret: bool
    media_type: str = "application/x-www-form-urlencoded"
    is_optional: bool = False

    def render(self, arguments: JsonObject) -> bytes | None:
        fields = texts_of(self.fields, arguments)
        return None if self.is_optional and not fields else urlencode(fields).encode()


class _TextBody(msgspec.Struct, frozen=True, kw_only=True):
    template: TextTemplate
    has_secret: bool
    media_type: str = "text/plain; charset=utf-8"
    is_optional: bool = False

    def render(self, arguments: JsonObject) -> bytes | None:
        if self.is_optional:
            text = self.template.render_element(arguments)
            return None if text is None else text.encode()
        return self.template.render(arguments).encode()


def compile_request(config: Http, *, connection: tuple[str, Connection] | None, scope: Scope) -> RequestTemplate:
    """Compile the request of an `http:` block; mistakes go to the problems of `scope`, or of the connection's place."""
    query, headers, cookies = Fields(), Fields(), Fields()
    base_url = None
    if connection is not None:
        name, shared = connection
        beside = replace(scope, problems=scope.problems.root.at("connections", name))
        base_url = shared.base_url if base_url_problem(shared.base_url) is None else "https://invalid"
        query.add(shared.query, beside.at("query"))
        headers.add(shared.headers, beside.at("headers"), check=check_header, is_bound=True)
    query.add(config.query, scope.at("query"))
    headers.add(config.headers, scope.at("headers"), check=check_header, style="simple")
    cookies.add(config.cookies, scope.at("cookies"), check=check_cookie)
    url = compile_url(config.url, base_url=base_url, scope=scope.at("url"))
    return RequestTemplate(
        method=config.method or ("GET" if config.body_kind is None else "POST"),
        url=url,
        fixed_url=_fixed_url(url, query.merged),
        query=query.merged,
        headers=headers.merged,
        cookies=cookies.merged,
        forwarded=_compile_forwarded(config.forward_headers, scope.at("forward_headers")),
        body=_compile_body(config, scope),
    )


def _fixed_url(url: UrlTemplate, query: tuple[Field, ...]) -> URL | None:
    """The URL that every call sends its request to, if there is one."""
    is_literal = all(isinstance(part, str) for part in (*url.authority, *url.path, *url.query))
    if not is_literal or any(field.template.literal is None for field in query):
        return None
    try:
        return _url(url, query, {})
    except ExecutionError:  # each call says so
        return None


def _compile_forwarded(names: Sequence[str], scope: Scope) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if not TOKEN.fullmatch(name) or name == "*":  # a token, and meant as a wildcard, which there is not
            scope.at(index).problems.error(f"`{name}` is not the name of a header")
        elif name.lower() in CREDENTIALS | FRAMING:
            scope.at(index).problems.error(f"`{name}` is meant for this daemon alone and cannot be forwarded")
    return tuple(names)


def _compile_body(config: Http, scope: Scope) -> _Body | None:
    match config.body_kind:
        case "json_":
            json_template = compile_json(config.json_, scope.at("json"))
            is_optional = config.optional_body
            return _JsonBody(template=json_template, has_secret=has_secret_in(config.json_), is_optional=is_optional)
        case "form":
            fields = Fields()
            fields.add(config.form or {}, scope.at("form"))
            is_optional = config.optional_body
            return _FormBody(fields=fields.merged, has_secret=has_secret_in(config.form), is_optional=is_optional)
        case "body":
            source = config.body or ""
            template = compile_text(source, scope.at("body"))
            return _TextBody(template=template, has_secret=has_secret_in(source), is_optional=config.optional_body)
        case None:
            return None
