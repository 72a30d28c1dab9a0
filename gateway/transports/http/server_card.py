"""Serves server cards and their catalog (SEP-2127, a draft).

Cards contain the public URL of the server, so they require `listen.public_url`. Each view has a card, except for hidden
views that require scopes.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
from aiohttp import web

from gateway.access.authenticator import Authenticator
from gateway.catalog.catalog import View
from gateway.json_types import JsonObject
from gateway.protocol.server_card import (
    CARD_TYPE,
    CATALOG_TYPE,
    PublicEndpoint,
    ai_catalog,
    qualified_name,
    server_card,
)
from gateway.transports.http.request import Endpoint, HttpRequest
from gateway.wire import jsonrpc

CARD: Final = "/server-card"
AI_CATALOG: Final = "/.well-known/ai-catalog.json"
_NO_NAME: Final = {
    "error": "not found; the name of a card must start with a reversed domain: set `server.website_url`, or a "
    "`server.name` such as com.example/ops"
}
_NO_VIEW: Final = {"error": "unknown view"}


class ServerCards(msgspec.Struct, frozen=True, kw_only=True):
    public_url: str
    path: str
    """The path of the MCP endpoint."""
    sse_path: str | None
    authenticator: Authenticator
    server_info: Callable[[], JsonObject]
    """Returns the current `Implementation` object, which describes the server."""
    views: Callable[[], Iterable[View]]

    def endpoints(self, prefix: str) -> Iterator[tuple[str, Endpoint]]:
        endpoint = self.path.rstrip("/")
        for before in {"", prefix}:
            yield f"{before}{endpoint}{CARD}", self._answer_card
            yield f"{before}{endpoint}/{{view}}{CARD}", self._answer_card
            yield f"{before}{AI_CATALOG}", self._answer_catalog

    async def _answer_card(self, request: HttpRequest) -> web.Response:
        view = request.raw.match_info.get("view")
        if view is not None and view not in self._open_views():
            return request.answer(_NO_VIEW, status=404)
        name = self._name()
        if name is None:
            return request.answer(_NO_NAME, status=404)
        card = server_card(self.server_info(), self._endpoint(view), name=_of_view(name, view))
        return _document(request, card, media_type=CARD_TYPE)

    async def _answer_catalog(self, request: HttpRequest) -> web.Response:
        name = self._name()
        if name is None:
            return request.answer(_NO_NAME, status=404)
        cards = [(_of_view(name, view), f"{self._endpoint(view).url}{CARD}") for view in (None, *self._open_views())]
        return _document(request, ai_catalog(cards), media_type=CATALOG_TYPE)

    def _name(self) -> str | None:
        info = self.server_info()
        website = info.get("websiteUrl")
        return qualified_name(str(info["name"]), [website if isinstance(website, str) else None, self.public_url])

    def _open_views(self) -> tuple[str, ...]:
        return tuple(view.name for view in self.views() if view.access.is_visible or not view.access.scopes)

    def _endpoint(self, view: str | None) -> PublicEndpoint:
        base = self.public_url.rstrip("/")
        suffix = "" if view is None else f"/{view}"
        return PublicEndpoint(
            url=f"{base}{self.path.rstrip('/')}{suffix}",
            sse_url=None if self.sse_path is None else f"{base}{self.sse_path}{suffix}",
            takes_keys=self.authenticator.takes_keys,
            takes_tokens=bool(self.authenticator.oauth),
        )


def _of_view(name: str, view: str | None) -> str:
    return name if view is None else f"{name}-{view}"


def _document(request: HttpRequest, value: JsonObject, *, media_type: str) -> web.Response:
    body = jsonrpc.encode(value)
    digest = hashlib.sha256(body).hexdigest()[:32]
    headers = {
        **request.response_headers,
        # SEP-2127 (draft), "CORS Requirements" and "Caching".
        "Access-Control-Allow-Methods": "GET",
        "Access-Control-Allow-Headers": "Content-Type, If-None-Match",
        "Access-Control-Expose-Headers": "ETag",
        "Cache-Control": "public, max-age=3600",
        "ETag": f'"{digest}"',
    }
    # RFC 9110 §13.1.2: weak comparison, so ignore `W/`.
    if any(each.value in {digest, "*"} for each in request.raw.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers={"Content-Type": media_type, **headers})
