"""The console: its paths, and how they are let in. Mounted by the admin API on the listener that has `/-/…`."""

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
_NO_FILE: Final = HttpError(status=404, message="There is no such file")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One path of the API, and the endpoint that answers callers who may use the console, with their identity."""

    path: str
    """The path below `/-/api`, in the router's form: `/calls/{seq}`."""
    endpoint: Endpoint
    methods: tuple[str, ...] = READ


class WebConsole:
    """The page, signing in, and the paths of the API."""

    def __init__(self, *, access: ConsoleAccess, files: Mapping[str, StaticFile], routes: Sequence[Route]) -> None:
        """Take the files of the page and the routes of the API."""
        self._access: Final = access
        self._sign_in: Final = SignIn(access)
        self._files: Final = files
        self._api: Final = tuple(routes)

    def mount(self, router: web.UrlDispatcher, door: Middleware, *, prefixes: Iterable[str]) -> None:
        """Stand on a listener, below each of these prefixes."""
        handlers = tuple(self._handlers(door))
        for prefix in prefixes:
            for path, handler in handlers:
                # Every method: a wrong one is answered with 405 by the endpoint, in the form of the API.
                router.add_route("*", f"{prefix}{path}", handler)

    def admitting(self, door: Middleware, endpoint: Endpoint, *, otherwise: Handler) -> Handler:
        """Make the handler of a path that operators may use as well: `otherwise` lets those in."""
        own = door.checked(self._admitted(endpoint))

        async def handle(raw: web.Request) -> web.StreamResponse:
            # Decided for each request: an operator's script and somebody who has signed in ask for the same path.
            is_ours = self._access.concerns(raw, door.client_endpoint(raw))
            return await (own if is_ours else otherwise)(raw)

        return handle

    def link(self, base_url: str) -> str:
        """Return the URL of the page; without `auth`, with the token that lets its reader in."""
        token = f"?token={self._access.token.text}" if self._access.authenticator.is_open else ""
        return f"{base_url}{PAGE}/{token}"

    def _handlers(self, door: Middleware) -> Iterator[tuple[str, Handler]]:
        for route in self._api:
            yield f"{API}{route.path}", door.checked(self._admitted(_by_method(route)))
        yield f"{API}/session", door.checked(_with_headers(self._sign_in.session))
        yield PAGE, door.checked(_with_headers(_to_page))
        yield f"{PAGE}/static/{{name:.+}}", door.checked(_with_headers(self._static))
        # Any name: the page itself reads from its URL what to show.
        yield f"{PAGE}/{{page:[^/]*}}", door.checked(_with_headers(self._page))

    def _admitted(self, endpoint: Endpoint) -> Endpoint:
        async def answer(request: HttpRequest) -> web.StreamResponse:
            identity = await self._access.identify(request)
            if isinstance(identity, AuthError):
                address, path = request.client_endpoint.address, request.raw.path
                self._access.authenticator.record_denial(identity, address=address, path=path)
            if isinstance(identity, AuthError | HttpError):
                return error_response(identity, _of_api(request).response_headers)
            return await endpoint(_of_api(request, identity))

        return answer

    async def _page(self, request: HttpRequest) -> web.StreamResponse:
        """Answer with the page, whatever it is to show; a link with a good token leads to it without the token."""
        raw = request.raw
        if raw.method not in READ:
            return _not_allowed(request, READ)
        token = raw.query.get("token")
        if token is None:
            return self._files[INDEX].response(raw, request.response_headers)
        response = await self._sign_in.follow_link(token, request)
        # The page explains the failure, and its form accepts another token.
        return response or self._files[INDEX].response(raw, request.response_headers, status=401)

    async def _static(self, request: HttpRequest) -> web.StreamResponse:
        if request.raw.method not in READ:
            return _not_allowed(request, READ)
        found = self._files.get(request.raw.match_info["name"])
        if found is None:
            return error_response(_NO_FILE, request.response_headers)
        return found.response(request.raw, request.response_headers)


async def _to_page(request: HttpRequest) -> web.StreamResponse:
    """Lead to the page: what it names is relative to its directory."""
    name = PAGE.rpartition("/")[2]
    return web.Response(status=308, headers={**request.response_headers, **OF_PAGE, "Location": f"{name}/"})


def _with_headers(endpoint: Endpoint) -> Endpoint:
    async def answer(request: HttpRequest) -> web.StreamResponse:
        return await endpoint(_of_api(request))

    return answer


def _of_api(request: HttpRequest, identity: Identity = UNAUTHENTICATED) -> HttpRequest:
    """Return the request of somebody, whose response carries the header fields of the API."""
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
