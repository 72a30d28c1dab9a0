"""The routes of the console, which the admin API mounts, and their access rules."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import web

from gateway.access.auth_error import AuthError
from gateway.access.identity import UNAUTHENTICATED, Identity
from gateway.console.console_access import ConsoleAccess
from gateway.console.responses import error_response
from gateway.console.security_headers import OF_API, OF_PAGE, without_cors
from gateway.console.sign_in import SignIn
from gateway.console.static_files import INDEX, StaticFile
from gateway.transports.errors import HttpError
from gateway.transports.http.middleware import Handler, Middleware
from gateway.transports.http.request import Endpoint, HttpRequest

PAGE: Final = "/-/console"
API: Final = "/-/api"
READ: Final = ("GET", "HEAD")
_NO_FILE: Final = HttpError(status=404, message="File not found")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """Path below `/-/api`, with the router's placeholders: `/calls/{seq}`."""
    endpoint: Endpoint
    methods: tuple[str, ...] = READ


class WebConsole(msgspec.Struct, frozen=True, kw_only=True):
    access: ConsoleAccess
    files: Mapping[str, StaticFile]
    routes: Sequence[Route]

    def mount(self, router: web.UrlDispatcher, middleware: Middleware, *, prefixes: Iterable[str]) -> None:
        handlers = tuple(self._handlers(middleware))
        for prefix in prefixes:
            for path, handler in handlers:
                # Every method, so that the endpoint can return 405 in the API's format.
                router.add_route("*", f"{prefix}{path}", handler)

    def admitting(self, middleware: Middleware, endpoint: Endpoint, *, otherwise: Handler) -> Handler:
        """Return a handler that admits signed-in users. Other requests go to `otherwise`."""
        own = middleware.checked(self._admitted(endpoint))

        async def handle(raw: web.Request) -> web.StreamResponse:
            is_ours = self.access.concerns(raw, middleware.client_endpoint(raw))
            return await (own if is_ours else otherwise)(raw)

        return handle

    def link(self, base_url: str) -> str:
        """Return the URL of the page. Without `auth`, the URL contains the token."""
        token = f"?token={self.access.token.text}" if self.access.authenticator.is_open else ""
        return f"{base_url}{PAGE}/{token}"

    def _handlers(self, middleware: Middleware) -> Iterator[tuple[str, Handler]]:
        for route in self.routes:
            yield f"{API}{route.path}", middleware.checked(self._admitted(_by_method(route)))
        yield f"{API}/session", middleware.checked(_with_headers(SignIn(access=self.access).session))
        yield PAGE, middleware.checked(_with_headers(_to_page))
        yield f"{PAGE}/static/{{name:.+}}", middleware.checked(_with_headers(self._static))
        yield f"{PAGE}/{{page:[^/]*}}", middleware.checked(_with_headers(self._page))

    def _admitted(self, endpoint: Endpoint) -> Endpoint:
        async def answer(request: HttpRequest) -> web.StreamResponse:
            identity = await self.access.identify(request)
            if isinstance(identity, AuthError):
                address, path = request.client_endpoint.address, request.raw.path
                self.access.authenticator.record_denial(identity, address=address, path=path)
            if isinstance(identity, AuthError | HttpError):
                return error_response(identity, _of_api(request).response_headers)
            return await endpoint(_of_api(request, identity))

        return answer

    async def _page(self, request: HttpRequest) -> web.StreamResponse:
        """Return the page. A link with a valid token redirects to the page without the token."""
        raw = request.raw
        if raw.method not in READ:
            return _not_allowed(request, READ)
        token = raw.query.get("token")
        if token is None:
            return self.files[INDEX].response(raw, request.response_headers)
        response = await SignIn(access=self.access).follow_link(token, request)
        # The page explains the failure, and its form accepts another token.
        return response or self.files[INDEX].response(raw, request.response_headers, status=401)

    async def _static(self, request: HttpRequest) -> web.StreamResponse:
        if request.raw.method not in READ:
            return _not_allowed(request, READ)
        found = self.files.get(request.raw.match_info["name"])
        if found is None:
            return error_response(_NO_FILE, request.response_headers)
        return found.response(request.raw, request.response_headers)


async def _to_page(request: HttpRequest) -> web.StreamResponse:
    """Redirect to the directory, because the page contains relative URLs."""
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


def _by_method(route: Route) -> Endpoint:
    async def answer(request: HttpRequest) -> web.StreamResponse:
        if request.raw.method not in route.methods:
            return _not_allowed(request, route.methods)
        return await route.endpoint(request)

    return answer


def _not_allowed(request: HttpRequest, methods: Sequence[str]) -> web.Response:
    error = HttpError(status=405, message="method not allowed", headers={"Allow": ", ".join(methods)})
    return error_response(error, request.response_headers)
