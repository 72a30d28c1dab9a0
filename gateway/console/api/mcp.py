"""`POST /-/api/mcp`: the MCP endpoint for the page, of the stateless revision, as the caller who signed in."""

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
# Also for callers who may not use it: it is for them alone to know that there is one.
_NO_VIEW: Final = HttpError(status=404, message="There is no such view")


class McpApi:
    """The route `/mcp`: hands requests on to the daemon's endpoint, as the caller, and at the view they name."""

    def __init__(self, endpoint: StreamableHttp, views: ServedViews) -> None:
        self._endpoint: Final = endpoint
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
        view = view_of(request, self._views)
        if isinstance(view, HttpError):
            return error_response(view, headers)
        # The caller has been identified by the console's own rules; the endpoint asks for no credential again.
        inner = HttpRequest(
            request.raw,
            client_endpoint=request.client_endpoint,
            response_headers=headers,
            identity=request.identity,
            view=view,
        )
        return await self._endpoint.handle(inner)


def view_of(request: HttpRequest, views: ServedViews) -> str | HttpError | None:
    """Return the view that `?view=` names, None for the whole; 404 where the caller may not use it."""
    name = request.raw.query.get("view") or None
    is_admitted = request.identity.may_enter(name) and views.admits(name, request.identity)
    return name if is_admitted else _NO_VIEW
