"""`/-/api/mcp`, `/-/api/validate` and `/-/api/explain` run, check and explain calls of the signed-in caller."""

import asyncio
from collections.abc import Iterator
from typing import Final

import msgspec
from aiohttp import web

from gateway.access.identity import Identity
from gateway.catalog.explained import EVERY_CAPABILITY, Explained, explaining
from gateway.catalog.store import CatalogStore
from gateway.console.console import Route
from gateway.console.responses import error_response, json_response, read_json_object
from gateway.errors import ArgumentsError, RpcError
from gateway.executors.shared_services import Services
from gateway.json_types import Json, JsonObject
from gateway.protocol.dispatcher import Dispatcher, ServedViews
from gateway.state.keys import random_keys
from gateway.transports.errors import HttpError
from gateway.transports.http.request import HttpRequest
from gateway.transports.memory import MemoryClient
from gateway.transports.streamable_http.endpoint import StreamableHttp
from gateway.wire import meta
from gateway.wire.revisions import LATEST_MODERN, is_modern_date

_STATELESS: Final = HttpError(
    status=400,
    message=f"This path supports only the stateless revision. Send {meta.HEADER_PROTOCOL_VERSION}: {LATEST_MODERN}",
)
# Callers without access get the same error, because they must not learn that the view exists.
_NO_VIEW: Final = HttpError(status=404, message="Unknown view")


_EXPLAINED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_NO_TOOL: Final = HttpError(status=404, message="Unknown tool")
_NOT_EXPLAINED: Final = HttpError(
    status=400, message=f"`method` must be one of {', '.join(_EXPLAINED)}, and `params` an object with the name or URI"
)


class McpApi(msgspec.Struct, frozen=True, kw_only=True):
    endpoint: StreamableHttp
    store: CatalogStore
    services: Services
    views: ServedViews

    def routes(self) -> Iterator[Route]:
        yield "/mcp", ("POST",), self._answer
        yield "/validate", ("POST",), self._validate
        yield "/explain", ("POST",), self._explain

    async def _answer(self, request: HttpRequest) -> web.StreamResponse:
        """Handle an MCP message.

        1. Return 400 unless the protocol revision is stateless.
        2. Return 404 unless the view in `?view=` exists and the caller can use the view.
        3. Pass the request to `StreamableHttp.handle`.
        """
        if not is_modern_date(request.raw.headers.get(meta.HEADER_PROTOCOL_VERSION, "")):
            return error_response(_STATELESS, request)
        view = view_of(request, self.views)
        if isinstance(view, HttpError):
            return error_response(view, request)
        # The console has authenticated the caller, so the endpoint requires no credential.
        inner = HttpRequest(
            request.raw,
            client_endpoint=request.client_endpoint,
            response_headers=request.response_headers,
            identity=request.identity,
            view=view,
        )
        return await self.endpoint.handle(inner)

    async def _validate(self, request: HttpRequest) -> web.Response:
        body = await read_json_object(request)
        if isinstance(body, HttpError):
            return error_response(body, request)
        tool = self.store.current.tool(str(body.get("tool")))
        # The response for a hidden tool must be the same as for a tool that does not exist.
        if tool is None or not (request.identity.holds(tool.access.scopes) or tool.access.is_visible):
            return error_response(_NO_TOOL, request)
        arguments = body.get("arguments")
        if not isinstance(arguments, dict):
            return json_response({"problems": [{"path": "", "message": "must be an object"}]}, request)
        problems: list[Json] = []
        try:
            tool.arguments.prepare(arguments)
        except ArgumentsError as error:
            redactor = self.store.current.redactor
            problems = [{"path": path, "message": redactor.text(message)} for path, message in error.faults]
        return json_response({"problems": problems}, request)

    async def _explain(self, request: HttpRequest) -> web.Response:
        """Explain a tool call, a resource read or a prompt in the view that `?view=` names.

        Return 404 if the caller cannot use the view, and 422 with the error message if the request would fail.
        """
        view = view_of(request, self.views)
        if isinstance(view, HttpError):
            return error_response(view, request)
        body = await read_json_object(request)
        if isinstance(body, HttpError):
            return error_response(body, request)
        asked = _asked(body)
        if asked is None:
            return error_response(_NOT_EXPLAINED, request)
        try:
            explained = await self._explained(*asked, identity=request.identity, view=view)
        except RpcError as error:
            return error_response(HttpError(status=422, message=error.message), request)
        if isinstance(explained, str):
            return error_response(HttpError(status=422, message=explained), request)
        return json_response({"explanation": explained.as_json()}, request)

    async def _explained(
        self, method: str, params: dict[str, Json], *, identity: Identity, view: str | None
    ) -> Explained | str:
        found: list[Explained] = []
        # Use a thread, because the copy of a catalog with ten thousand tools takes long.
        offered = await asyncio.to_thread(explaining, self.store.current, found.append)
        # A separate dispatcher ensures that the explanation is not counted, limited or recorded as a call.
        dispatcher = Dispatcher(store=CatalogStore(offered), services=self.services, keys=random_keys())
        try:
            client = MemoryClient(dispatcher, capabilities=EVERY_CAPABILITY, identity=identity, view=view)
            result = await client.request(method, params)
        finally:
            await dispatcher.tasks.close()
        if found:
            return found[0]
        return "\n".join(block.get("text", "") for block in result.get("content", ()))


def view_of(request: HttpRequest, views: ServedViews) -> str | HttpError | None:
    """Return the view that `?view=` names, or None without it. Return a 404 error if the caller cannot use the view."""
    name = request.raw.query.get("view") or None
    is_admitted = request.identity.may_enter(name) and views.admits(name, request.identity)
    return name if is_admitted else _NO_VIEW


def _asked(body: JsonObject) -> tuple[str, dict[str, Json]] | None:
    method, params = body.get("method"), body.get("params")
    if not isinstance(method, str) or method not in _EXPLAINED or not isinstance(params, dict):
        return None
    named = _EXPLAINED[method]
    if not isinstance(params.get(named), str):
        return None
    return method, {key: params[key] for key in (named, "arguments") if key in params}
