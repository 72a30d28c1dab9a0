"""`POST /-/api/mcp`: the MCP endpoint for the page, of the stateless revision, as the caller who signed in."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from aiohttp import web

from gateway.console.console import Route
from gateway.console.responses import NO_VIEW, error_response
from gateway.protocol.served_views import ServedViews
from gateway.transports.errors import HttpError
from gateway.transports.http.middleware import Endpoint
from gateway.transports.http.request import HttpRequest
from gateway.wire import meta
from gateway.wire.revisions import is_modern_date

_STATELESS: Final = HttpError(
    status=400,
    message=f"This path speaks the stateless revision alone: send {meta.HEADER_PROTOCOL_VERSION}: 2026-07-28",
)


class McpApi:
    """The route `/mcp`: hands requests on to the daemon's endpoint, as the caller, and at the view they name."""

    def __init__(self, handle: Callable[[], Endpoint], *, views: ServedViews) -> None:
        """Take what gives the daemon's endpoint, which is there once the daemon listens."""
        self._handle: Final[Callable[[], Callable[[HttpRequest], Awaitable[web.StreamResponse]]]] = handle
        self._views: Final = views

    def routes(self) -> Iterator[Route]:
        yield Route(path="/mcp", endpoint=self._answer, methods=("POST",))

    async def _answer(self, request: HttpRequest) -> web.StreamResponse:
        """Answer a message.

        1. the revision is a stateless one: 400
        2. there is a view of the name in `?view=`, and the caller may use it: 404
        3. see `StreamableHttp.handle`
        """
        headers = request.response_headers
        if not is_modern_date(request.raw.headers.get(meta.HEADER_PROTOCOL_VERSION, "")):
            return error_response(_STATELESS, headers)
        name = request.raw.query.get("view") or None
        if not (request.identity.may_enter(name) and self._views.admits(name, request.identity)):
            return error_response(NO_VIEW, headers)
        # The caller has been identified by the console's own rules; the endpoint asks for no credential again.
        inner = HttpRequest(
            request.raw,
            client_endpoint=request.client_endpoint,
            response_headers=headers,
            identity=request.identity,
            view=name,
        )
        return await self._handle()(inner)
