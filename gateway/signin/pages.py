"""Serves the pages for signing in to services, `/-/connections`, and client metadata documents.

Threats:

- Another person opens a sign-in link: only the caller who received the link is redirected to the authorization server.
- The authorization response arrives in another browser: the cookie of the browser that opened the link is required.
- A page of another origin submits a form: `Origin` must be this server's own. Pages cannot be framed or run scripts.
- Without `auth`, a person on another machine opens a page: only clients on this machine are served.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from html import escape
from typing import Final
from urllib.parse import parse_qs

from aiohttp import web
from msgspec.structs import replace

from gateway.access.auth_error import AuthError
from gateway.access.identity import ANONYMOUS, OPERATORS, Identity, Subject
from gateway.console.console_access import ConsoleAccess, own_origins
from gateway.console.static_files import without_cors
from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject
from gateway.net.authorization_code import CLIENT_DOCUMENTS, PAGES, ServiceEntry
from gateway.net.sign_ins import PendingSignIn, SignInRequiredError, SignIns
from gateway.net.token_client import TokenEndpoint
from gateway.signin.browser import BROWSER, BrowserSignIns
from gateway.transports.errors import HttpError
from gateway.transports.http.admin_api import is_local
from gateway.transports.http.body import read_limited
from gateway.transports.http.host_and_origin import origin_of
from gateway.transports.http.middleware import Middleware
from gateway.transports.http.request import Endpoint, HttpRequest

CONNECTIONS: Final = "/-/connections"
_READ: Final = frozenset({"GET", "HEAD"})
_MAX_FORM: Final = 32 * 1024
_FORM_SECONDS: Final = 10.0
_STYLE: Final = "body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:3em auto;padding:0 1em}input{width:100%}"
_STYLE_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    # Browsers apply `form-action` to redirects too, and a form redirects to the authorization server.
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self' https: http://127.0.0.1:* http://localhost:*",
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    # With `no-referrer`, browsers send `Origin: null` with forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PageError(Exception):
    """Raised to respond with an error page."""

    def __init__(self, status: int, text: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status: Final = status
        self.headers: Final = headers or {}


class SignInPages:
    def __init__(
        self,
        sign_ins: SignIns,
        *,
        access: ConsoleAccess,
        issuers: TokenEndpoint,
        served: Callable[[], frozenset[str]],
    ) -> None:
        """`issuers` sends requests to issuers. `served` returns the keys of the configured services."""
        self._sign_ins: Final = sign_ins
        self._access: Final = access
        self._browsers: Final = BrowserSignIns(sign_ins, authenticator=access.authenticator, endpoint=issuers)
        self._served: Final = served

    def listen_at(self, base_url: str) -> None:
        self._sign_ins.listen_at(base_url)

    def mount(
        self, router: web.UrlDispatcher, middleware: Middleware, *, prefixes: Iterable[str], is_main: bool = True
    ) -> None:
        """Add the routes of a listener.

        `is_main` is false for the admin listener, whose console only needs OpenID Connect.
        """
        pages: dict[str, Endpoint] = {
            BROWSER: partial(self._browser, is_main=is_main),
            f"{BROWSER}/callback": self._browser_callback,
        }
        if is_main:
            pages |= {
                f"{PAGES}/callback/{{entry}}": self._callback,
                f"{PAGES}/{{link:[A-Za-z0-9_-]+}}": self._link,
                CONNECTIONS: self._connections,
            }
        for prefix in dict.fromkeys(prefixes):
            for path, page in pages.items():
                router.add_route("*", f"{prefix}{path}", middleware.checked(self._guarded(page)))
            if is_main:
                document = middleware.cors_public(self._client_document)
                router.add_route("*", f"{prefix}{CLIENT_DOCUMENTS}/{{name}}.json", document)

    def _guarded(self, page: Endpoint) -> Endpoint:
        async def guarded(request: HttpRequest) -> web.StreamResponse:
            try:
                self._check_local(request)
                return await page(request)
            except PageError as error:
                if _is_json(request):
                    return _json(request, {"error": str(error)}, status=error.status, headers=error.headers)
                return _page(request, f"<p>{escape(str(error))}</p>", status=error.status, headers=error.headers)

        return guarded

    def _check_local(self, request: HttpRequest) -> None:
        if self._access.authenticator.is_open and not is_local(request):
            raise PageError(403, "Without `auth`, only this machine can use this page.")

    async def _client_document(self, request: HttpRequest) -> web.StreamResponse:
        name, base_url = request.raw.match_info["name"], self._sign_ins.base_url
        for entry in self._sign_ins.entries(self._served()):
            if entry.title == name and base_url is not None:
                return request.answer(entry.client_document(base_url), headers={})
        return request.answer({"error": "not found"}, status=404, headers={})

    async def _link(self, request: HttpRequest) -> web.StreamResponse:
        form = await _form(request)
        pending = await self._sign_ins.pending(request.raw.match_info["link"])
        if pending is None:
            raise PageError(404, "This link does not exist or has expired. Repeat your request to get a new link.")
        if pending.state or pending.is_done:
            raise PageError(410, "This link has already been used. Repeat your request to get a new link.")
        entry = self._sign_ins.entry(pending.entry)
        if entry is None:
            raise PageError(410, "The configuration has changed. Repeat your request to get a new link.")
        identity = await self._identified(request, form)
        if identity is not None and (identity.subject_key or "") != pending.person:
            raise PageError(403, "This link was created for another user. Repeat your request yourself.")
        if request.raw.method in _READ or identity is None:
            key = _KEY_FIELD if identity is None else ""
            forms = self._browsers.forms(f"sign-in/{request.raw.match_info['link']}", action="browser")
            button = f"<form method=post>{key}<button>Sign in to {escape(entry.title)}</button></form>"
            return _page(request, button if identity is not None else forms + button)
        return await self._redirect(request, pending)

    async def _redirect(self, request: HttpRequest, pending: PendingSignIn) -> web.StreamResponse:
        try:
            url, cookie = await self._sign_ins.start(pending)
        except ExecutionError as error:
            raise PageError(424, str(error)) from error
        return _to_issuer(request, url, pending.id, cookie)

    async def _browser(self, request: HttpRequest, *, is_main: bool) -> web.StreamResponse:
        form = await _form(request)
        if request.raw.method in _READ:
            if _is_json(request):
                return _json(request, {"issuers": [entry.issuer[0] for entry in self._browsers.entries]})
            return _page(request, self._browsers.forms(request.raw.query.get("back", "connections"), action="browser"))
        base_url = self._sign_ins.base_url
        if not is_main:  # The public URL leads to the main listener.
            base_url = f"{request.raw.scheme}://{request.raw.host}{request.client_endpoint.prefix}"
        try:
            url, state, cookie = await self._browsers.start(
                form.get("issuer", ""), form.get("back", ""), base_url=base_url
            )
        except ExecutionError as error:
            raise PageError(424, str(error)) from error
        return _to_issuer(request, url, state, cookie)

    async def _browser_callback(self, request: HttpRequest) -> web.StreamResponse:
        response = _response_of(request)
        try:
            cookie = request.raw.cookies.get(_cookie_name(response.get("state", "")), "")
            identity, back = await self._browsers.finish(response, cookie)
        except ExecutionError as error:
            raise PageError(400, f"Sign-in failed: {error}") from error
        if isinstance(identity, AuthError):
            address = request.client_endpoint.address
            self._access.authenticator.record_denial(identity, address, request.raw.path)
            raise PageError(identity.status, f"Sign-in failed: {identity.message}")
        _check_views(identity)
        # Do not redirect, because browsers send no SameSite=Strict cookie after a redirect from another site.
        link = f"{request.client_endpoint.prefix}/-/{back}"
        refresh = f"<meta http-equiv=refresh content='0;url={link}'>"
        page = _page(request, f"{refresh}<p>You are signed in. <a href='{link}'>Continue</a></p>")
        # The session has its own duration, because ID tokens are only valid for minutes.
        if not self._access.give_cookie(replace(identity, expires_at=None), request, page):
            raise PageError(413, "Sign-in failed: you have too many roles for a cookie.")
        return page

    async def _callback(self, request: HttpRequest) -> web.StreamResponse:
        query = _response_of(request)
        state = query.get("state", "")
        cookie = request.raw.cookies.get(_cookie_name(state.partition(".")[0]), "")
        pending = await self._sign_ins.returned(state, cookie, name=request.raw.match_info["entry"])
        if pending is None:
            raise PageError(400, "This response does not belong to a sign-in of this browser.")
        try:
            entry = await self._sign_ins.finish(pending, query)
        except ExecutionError as error:
            raise PageError(400, f"Sign-in failed: {error}") from error
        return _page(request, f"<p>You are signed in to {escape(entry.title)}. You can close this page.</p>")

    async def _connections(self, request: HttpRequest) -> web.StreamResponse:
        form = await _form(request)
        identity = await self._identified(request, form)
        is_json = _is_json(request)
        if identity is None and is_json:
            raise PageError(401, "authentication required")
        if identity is None:
            forms = self._browsers.forms("connections", action="sign-in/browser")
            key = f"<form method=post>{_KEY_FIELD}<button>Show my connections</button></form>"
            return _page(request, forms + key)
        if "action" in form:
            return await self._act(request, identity, form, is_json=is_json)
        rows = [await self._row(entry, identity) for entry in self._sign_ins.entries(self._served())]
        if is_json:
            return _json(request, {"connections": rows})
        response = _page(request, "".join(map(_shown, rows)) or "<p>No service requires that you sign in.</p>")
        if form.get("token"):
            self._access.give_cookie(identity, request, response)
        return response

    async def _act(
        self, request: HttpRequest, identity: Identity, form: Mapping[str, str], *, is_json: bool
    ) -> web.StreamResponse:
        found = (each for each in self._sign_ins.entries(self._served()) if each.name == form.get("entry"))
        entry = next(found, None)
        if entry is None:
            raise PageError(404, "This service does not exist.")
        if entry.config.shared and not identity.holds(OPERATORS):
            raise PageError(403, "Only an administrator can do this (scope gateway:admin).")
        subject = Subject(identity.subject_key or "", is_operator=identity.holds(OPERATORS))
        if form["action"] == "sign_out":
            await self._sign_ins.sign_out_of(entry, subject.key or "")
        else:
            link = await self._sign_ins.link(SignInRequiredError(self._sign_ins, entry, subject))
            if is_json:
                return _json(request, {"link": link})
            pending = await self._sign_ins.pending(link.rpartition("/")[2])
            assert pending is not None  # noqa: S101 - just created
            return await self._redirect(request, pending)
        if is_json:
            return _json(request, {"signed_out": entry.name})
        return _redirect_to(request, "connections")

    async def _row(self, entry: ServiceEntry, identity: Identity) -> dict[str, Json]:
        row = await self._sign_ins.described(entry, identity.subject_key or "")
        return {**row, "people": await self._sign_ins.count(entry)} if identity.holds(OPERATORS) else row

    async def _identified(self, request: HttpRequest, form: Mapping[str, str]) -> Identity | None:
        """Return the user who sends a request, or None if the user has to enter an API key.

        1. Without `auth`, all requests from this machine belong to one user.
        2. Otherwise, the form field `token` or a credential in the headers identifies the user.
        3. Otherwise, the cookie of an earlier sign-in identifies the user.
        """
        if self._access.authenticator.is_open:
            return ANONYMOUS
        fields, address = request.raw.headers, request.client_endpoint.address
        found: Identity | AuthError | HttpError | None
        if token := form.get("token", "").strip():
            found = await self._access.by_credential(token, address=address)
        elif "Authorization" in fields or "X-API-Key" in fields:
            found = await self._access.by_header(request)
        else:
            found = self._access.of_cookie(request)
        if isinstance(found, AuthError):
            self._access.authenticator.record_denial(found, address, request.raw.path)
        if isinstance(found, AuthError | HttpError):
            raise PageError(found.status if found.status >= 400 else 401, found.message)
        if found is not None:
            _check_views(found)
        return found


_KEY_FIELD: Final = (
    "<p><label>API key or access token of this server"
    "<input type=password name=token autocomplete=current-password required></label></p>"
)


def _shown(row: Mapping[str, Json]) -> str:
    entry, is_in = escape(str(row["entry"])), row["signed_in"]
    facts = [f"signed in since {row['since']}", f"scopes: {' '.join(row['scopes']) or 'none'}"] if is_in else []
    if "people" in row:
        facts.append(f"people: {row['people']}")
    action, label = ("sign_out", "Sign out") if is_in else ("sign_in", "Sign in")
    return (
        f"<h2>{entry}</h2><p>{escape(', '.join(facts)) or 'not signed in'}</p><form method=post action=connections>"
        f'<input type=hidden name=entry value="{entry}"><button name=action value={action}>{label}</button></form>'
    )


def _check_views(identity: Identity) -> None:
    if not identity.may_enter(None):
        raise PageError(403, "This access token is only valid for a view. Use one for the whole server.")


def _response_of(request: HttpRequest) -> Mapping[str, str]:
    if request.raw.method not in _READ:
        raise PageError(405, "Method not allowed.", headers={"Allow": "GET, HEAD"})
    query = request.raw.query
    # RFC 6749 §3.1: parameters must not be repeated.
    if any(len(query.getall(name)) > 1 for name in set(query)):
        raise PageError(400, "The response contains a parameter twice.")
    return query


def _to_issuer(request: HttpRequest, url: str, name: str, cookie: str) -> web.Response:
    response = _redirect_to(request, url)
    response.set_cookie(
        _cookie_name(name),
        cookie,
        max_age=600,
        path=f"{request.client_endpoint.prefix}{PAGES}/",
        secure=request.client_endpoint.base_url.startswith("https:"),
        httponly=True,
        # Lax: the authorization response is a navigation from another site.
        samesite="Lax",
    )
    return response


def _cookie_name(pending: str) -> str:
    return f"mcp-gateway-sign-in-{pending[:8]}"


def _redirect_to(request: HttpRequest, url: str) -> web.Response:
    return web.Response(status=303, headers={**without_cors(request.response_headers), **_HEADERS, "Location": url})


def _is_json(request: HttpRequest) -> bool:
    return "application/json" in request.raw.headers.get("Accept", "")


def _json(
    request: HttpRequest, body: JsonObject, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    fields = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **(headers or {})}
    return request.answer(body, status=status, headers=fields)


def _page(
    request: HttpRequest, body: str, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    text = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Sign in</title><style>{_STYLE}</style><body><h1>mcp-gateway</h1>{body}</body></html>"
    )
    fields = {**without_cors(request.response_headers), **_HEADERS, **(headers or {})}
    return web.Response(body=text.encode(), status=status, headers=fields)


async def _form(request: HttpRequest) -> Mapping[str, str]:
    raw = request.raw
    if raw.method in _READ:
        return {}
    if raw.method != "POST":
        raise PageError(405, "Method not allowed.", headers={"Allow": "GET, HEAD, POST"})
    # Programs send a credential and no Origin. Browsers send Origin with every POST (Fetch Standard).
    origin = raw.headers.get("Origin")
    is_program = origin is None and "Sec-Fetch-Site" not in raw.headers
    if not is_program and (origin is None or origin_of(origin) not in own_origins(request)):
        raise PageError(403, "The form is not from a page of this server.")
    if raw.content_type != "application/x-www-form-urlencoded" or (raw.content_length or 0) > _MAX_FORM:
        raise PageError(415, "Expected a form.")
    try:
        body = await read_limited(raw.content, _MAX_FORM, _FORM_SECONDS)
    except TimeoutError:
        raise PageError(408, "The form did not arrive in time.") from None
    if len(body) > _MAX_FORM:  # a chunked body has no length
        raise PageError(415, "Expected a form.")
    fields = parse_qs(body.decode(errors="replace"))
    return {name: values[0] for name, values in fields.items()}
