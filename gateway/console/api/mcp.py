"""`POST /-/api/mcp`: the MCP endpoint for the console, for stateless revisions and the signed-in caller."""

from collections.abc import Iterator
from typing import Final

from aiohttp import web

from gateway.console.console import Route
from gateway.console.responses import error_response
from gateway.protocol.served_views import ServedViews
from gateway.transports.errors import HttpError
from gateway.transports.http.request import HttpRequest
from gateway.transports.streamable_http.endpoint import StreamableHttp
from gateway.wire import meta
from gateway.wire.revisions import LATEST_MODERN, is_modern_date

_STATELESS: Final = HttpError(
    status=400,
    message=f"This path speaks the stateless revision alone: send {meta.HEADER_PROTOCOL_VERSION}: {LATEST_MODERN}",
)
# The same for callers without access, who must not know that the view exists.
_NO_VIEW: Final = HttpError(status=404, message="There is no such view")


class McpApi:
    """The route `/mcp`, which passes requests to the MCP endpoint of the daemon."""

    def __init__(self, endpoint: StreamableHttp, views: ServedViews) -> None:
        self._endpoint: Final = endpoint
        self._views: Final = views

    def routes(self) -> Iterator[Route]:
        yield Route(path="/mcp", endpoint=self._answer, methods=("POST",))

    async def _answer(self, request: HttpRequest) -> web.StreamResponse:
        """Handle a message.

        1. the revision is stateless (400)
        2. the view in `?view=` exists, and the caller can use it (404)
        3. `StreamableHttp.handle`
        """
        headers = request.response_headers
        if not is_modern_date(request.raw.headers.get(meta.HEADER_PROTOCOL_VERSION, "")):
            return error_response(_STATELESS, headers)
        view = view_of(request, self._views)
        if isinstance(view, HttpError):
            return error_response(view, headers)
        # The console has authenticated the caller, so the endpoint requires no credential.
        inner = HttpRequest(
            request.raw,
            client_endpoint=request.client_endpoint,
            response_headers=headers,
            identity=request.identity,
            view=view,
        )
        return await self._endpoint.handle(inner)


def view_of(request: HttpRequest, views: ServedViews) -> str | HttpError | None:
    """Return the view in `?view=`, or None; 404 if the caller cannot use it."""
    name = request.raw.query.get("view") or None
    is_admitted = request.identity.may_enter(name) and views.admits(name, request.identity)
    return name if is_admitted else _NO_VIEW
