"""Routes of the console, their access rules, and sign-in. The admin API mounts the routes.

Without `auth`, the daemon logs a sign-in token, which users pass in the URL. The console exchanges the token for a
cookie and removes it from the URL. With `auth`, credentials in URLs are rejected.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import structlog
from aiohttp import web

from gateway.access.auth_error import AuthError
from gateway.access.identity import UNAUTHENTICATED, Identity
from gateway.console.console_access import HEADER, ConsoleAccess
from gateway.console.responses import error_response, no_content, read_json_object
from gateway.console.static_files import INDEX, OF_API, OF_PAGE, StaticFile, without_cors
from gateway.transports.errors import HttpError
from gateway.transports.http.middleware import Handler, Middleware
from gateway.transports.http.request import Endpoint, HttpRequest

PAGE: Final = "/-/console"
API: Final = "/-/api"
READ: Final = ("GET", "HEAD")
log: Final = structlog.get_logger(__name__)

_NO_FILE: Final = HttpError(status=404, message="File not found")
_MAX_TOKEN_LENGTH: Final = 16 * 1024
_NO_TOKEN: Final = HttpError(status=400, message="`token` must be a string with the key or token")
_NOT_OWN: Final = HttpError(
    status=403, message=f"Only the console's page can sign in here, with the header {HEADER}: 1"
)
_TOO_LARGE: Final = HttpError(
    status=413, message="The token is too large for a cookie. Send it in the Authorization header instead"
)


Route = tuple[str, Sequence[str], Endpoint]
"""A path below `/-/api`, such as `/calls/{seq}`, with its methods and its endpoint."""


class WebConsole(msgspec.Struct, frozen=True, kw_only=True):
    access: ConsoleAccess
    files: Mapping[str, StaticFile]
    routes: Sequence[Route]

    def mount(self, router: web.UrlDispatcher, middleware: Middleware, *, prefixes: Iterable[str]) -> None:
        handlers = tuple(self._handlers(middleware))
        for prefix in prefixes:
            for path, handler in handlers:
                # Route every method to the endpoint, so that it can return 405 in the API's error format.
                router.add_route("*", f"{prefix}{path}", handler)

    def admitting(self, middleware: Middleware, endpoint: Endpoint, *, otherwise: Handler) -> Handler:
        """Return a handler that authenticates console requests, and passes other requests to `otherwise`."""
        own = middleware.checked(self._admitted(endpoint))

        async def handle(raw: web.Request) -> web.StreamResponse:
            is_ours = self.access.concerns(raw, middleware.client_endpoint(raw))
            return await (own if is_ours else otherwise)(raw)

        return handle

    def link(self, base_url: str) -> str:
        """Return the URL of the page. Without `auth`, the URL contains the token."""
        token = f"?token={self.access.token}" if self.access.authenticator.is_open else ""
        return f"{base_url}{PAGE}/{token}"

    def _handlers(self, middleware: Middleware) -> Iterator[tuple[str, Handler]]:
        for path, methods, endpoint in self.routes:
            yield f"{API}{path}", middleware.checked(self._admitted(_limited(methods, endpoint)))
        public = {
            f"{API}/session": _limited(("POST", "DELETE"), self._session),
            PAGE: _limited(READ, _to_page),
            f"{PAGE}/static/{{name:.+}}": _limited(READ, self._static),
            f"{PAGE}/{{page:[^/]*}}": _limited(READ, self._page),
        }
        for path, endpoint in public.items():
            yield path, middleware.checked(_with_headers(endpoint))

    def _admitted(self, endpoint: Endpoint) -> Endpoint:
        async def answer(request: HttpRequest) -> web.StreamResponse:
            identity = await self.access.identify(request)
            if isinstance(identity, AuthError):
                address, path = request.client_endpoint.address, request.raw.path
                self.access.authenticator.record_denial(identity, address, path)
            if isinstance(identity, AuthError | HttpError):
                return error_response(identity, _of_api(request))
            return await endpoint(_of_api(request, identity))

        return answer

    async def _page(self, request: HttpRequest) -> web.StreamResponse:
        """Return the page, or redirect a link with a valid token to the page without the token."""
        raw = request.raw
        token = raw.query.get("token")
        if token is None:
            return self.files[INDEX].response(raw, request.response_headers)
        response = await self._follow_link(token, request)
        # The page explains the failure, and its form accepts another token.
        return response or self.files[INDEX].response(raw, request.response_headers, status=401)

    async def _static(self, request: HttpRequest) -> web.StreamResponse:
        found = self.files.get(request.raw.match_info["name"])
        if found is None:
            return error_response(_NO_FILE, request)
        return found.response(request.raw, request.response_headers)

    async def _session(self, request: HttpRequest) -> web.Response:
        """Handle `/-/api/session`, where POST signs in and DELETE signs out.

        1. The request must come from the console's page (403).
        2. The body of a POST must contain the string `token` (400, 413, 415).
        3. `ConsoleAccess.by_credential` and `ConsoleAccess.permitted` must accept the token of a POST.
        """
        # A page of another site must not be able to sign a browser in or out.
        if not self.access.is_own(request):
            return error_response(_NOT_OWN, request)
        if request.raw.method == "DELETE":
            response = no_content(request)
            self.access.take_cookie(request, response)
            return response
        return await self._sign_in(request)

    async def _sign_in(self, request: HttpRequest) -> web.Response:
        body = await read_json_object(request)
        if isinstance(body, HttpError):
            return error_response(body, request)
        token = body.get("token")
        if not isinstance(token, str) or not 0 < len(token.strip()) <= _MAX_TOKEN_LENGTH:
            return error_response(_NO_TOKEN, request)
        found = await self._identified(token.strip(), request)
        if isinstance(found, AuthError | HttpError):
            return error_response(found, request)
        response = no_content(request)
        is_given = self.access.give_cookie(found, request, response)
        return response if is_given else error_response(_TOO_LARGE, request)

    async def _follow_link(self, token: str, request: HttpRequest) -> web.Response | None:
        """Exchange the token of a link for a cookie and a redirect, or return None if the token is not accepted."""
        # An API key in a URL would appear in histories and logs, so it is ignored with `auth`.
        if not self.access.authenticator.is_open:
            return None
        found = await self._identified(token, request)
        if isinstance(found, AuthError | HttpError):
            return None
        # RFC 9110 §15.4.4: the browser requests the new URL, so the token disappears from the address bar.
        headers = {**request.response_headers, **OF_PAGE, "Cache-Control": "no-store", "Location": "./"}
        response = web.Response(status=303, headers=headers)
        return response if self.access.give_cookie(found, request, response) else None

    async def _identified(self, token: str, request: HttpRequest) -> Identity | AuthError | HttpError:
        address = request.client_endpoint.address
        found = await self.access.by_credential(token, address=address)
        if isinstance(found, Identity):
            found = self.access.permitted(found)
        if isinstance(found, AuthError):
            self.access.authenticator.record_denial(found, address, request.raw.path)
            log.warning("console sign-in denied", address=address, reason=found.error or "invalid")
        return found


async def _to_page(request: HttpRequest) -> web.StreamResponse:
    """Redirect to the URL with a trailing slash, because the page contains relative URLs."""
    name = PAGE.rpartition("/")[2]
    return web.Response(status=308, headers={**request.response_headers, **OF_PAGE, "Location": f"{name}/"})


def _with_headers(endpoint: Endpoint) -> Endpoint:
    async def answer(request: HttpRequest) -> web.StreamResponse:
        return await endpoint(_of_api(request))

    return answer


def _of_api(request: HttpRequest, identity: Identity = UNAUTHENTICATED) -> HttpRequest:
    headers = {**without_cors(request.response_headers), **OF_API}
    return HttpRequest(
        request.raw, client_endpoint=request.client_endpoint, response_headers=headers, identity=identity
    )


def _limited(methods: Sequence[str], endpoint: Endpoint) -> Endpoint:
    error = HttpError(status=405, message="method not allowed", headers={"Allow": ", ".join(methods)})

    async def answer(request: HttpRequest) -> web.StreamResponse:
        if request.raw.method not in methods:
            return error_response(error, request)
        return await endpoint(request)

    return answer
