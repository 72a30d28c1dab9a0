"""Builds the requests of HTTP backends.

Values are always data. They are encoded in URLs and bodies, and rejected in header fields if they contain line breaks.
"""

from collections.abc import Iterable, Sequence
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import replace
from yarl import URL

from gateway.config.models.backends import Connection, Http
from gateway.errors import ExecutionError
from gateway.executors.http.bodies import BodyTemplate, compile_body
from gateway.executors.http.fields import (
    CREDENTIALS,
    FRAMING,
    TOKEN,
    Field,
    checked_value,
    compile_fields,
    has_secret_in,
    pairs_of,
)
from gateway.executors.invocation import Invocation
from gateway.json_types import JsonObject
from gateway.language.scope import Scope
from gateway.language.uris.urls import UrlTemplate, base_url_problem, compile_url
from gateway.net.request import Header, Request, parse_url
from gateway.threads import DaemonThreadPool


class RequestTemplate(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    url: UrlTemplate
    query: tuple[Field, ...]
    headers: tuple[Field, ...]
    cookies: tuple[Field, ...]
    forwarded: tuple[str, ...]
    """The caller's header fields that are forwarded."""
    body: BodyTemplate | None
    has_secret_body: bool
    """Whether the configured body contains a secret."""

    def render(self, invocation: Invocation) -> Request:
        """Build the request of a call.

        Raises:
            ExecutionError: a value is not allowed where the template uses it.
        """
        arguments = invocation.variables
        body, media_type = (None if self.body is None else self.body.render(arguments)) or (None, "")
        headers = self._headers(invocation)
        if body is not None and "content-type" not in headers:
            headers["content-type"] = Header(name="Content-Type", value=media_type, is_bound=False)
        return Request(
            method=self.method,
            url=_url(self.url, self.query, arguments),
            headers=tuple(headers.values()),
            body=body,
            has_secret_body=self.has_secret_body,
        )

    def _headers(self, invocation: Invocation) -> dict[str, Header]:
        """Return header fields by lower-case name. Configured fields replace forwarded ones."""
        headers = {
            name.lower(): Header(name=name, value=checked_value(name, value), is_bound=True)
            for name in self.forwarded
            if (value := invocation.call.caller.headers.get(name.lower())) is not None
        }
        for field in self.headers:
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
    config: Http, *, connection: tuple[str, Connection] | None, scope: Scope, threads: DaemonThreadPool
) -> RequestTemplate:
    """Compile the request of an `http:` block. Reports problems there and at the connection."""
    query, headers, base_url = {}, {}, None
    if connection is not None:
        name, shared = connection
        beside = replace(scope, problems=scope.problems.root.at("connections", name))
        base_url = shared.base_url if base_url_problem(shared.base_url) is None else "https://invalid"
        query = compile_fields(shared.query, beside.at("query"), kind="query")
        # Bound: never sent to other origins after a redirect.
        headers = compile_fields(shared.headers, beside.at("headers"), kind="headers", is_bound=True)
    query |= compile_fields(config.query, scope.at("query"), kind="query")
    headers |= compile_fields(config.headers, scope.at("headers"), kind="headers")
    if config.multipart is not None:
        _check_no_content_type(config.headers, scope.at("headers"))
    cookies = compile_fields(config.cookies, scope.at("cookies"), kind="cookies")
    url = compile_url(config.url, base_url=base_url, scope=scope.at("url"))
    return RequestTemplate(
        method=config.method or ("GET" if config.body_kind is None else "POST"),
        url=url,
        query=tuple(query.values()),
        headers=tuple(headers.values()),
        cookies=tuple(cookies.values()),
        forwarded=_compile_forwarded(config.forward_headers, scope.at("forward_headers")),
        body=compile_body(config, scope, threads=threads),
        has_secret_body=any(map(has_secret_in, (config.json_, config.form, config.multipart, config.body))),
    )


def _check_no_content_type(names: Iterable[str], scope: Scope) -> None:
    """Report a configured `Content-Type`: it would not contain the boundary of a multipart request."""
    for name in names:
        if name.lower() == "content-type":
            scope.at(name).problems.error("is set by `multipart`, with a new boundary for each request")


def _compile_forwarded(names: Sequence[str], scope: Scope) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if not TOKEN.fullmatch(name) or name == "*":  # `*` is a token, but wildcards are not supported
            scope.at(index).problems.error(f"`{name}` is not a valid header name")
        elif name.lower() in CREDENTIALS | FRAMING:
            scope.at(index).problems.error(f"`{name}` is addressed to this daemon and cannot be forwarded")
    return tuple(names)
