"""Serves the server card and its catalog (SEP-2127, a draft).

The card contains the public URL of the server, so it requires `listen.public_url`. Views have no cards.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from aiohttp import web

from gateway.access.authenticator import Authenticator
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


class ServerCards(msgspec.Struct, frozen=True, kw_only=True):
    public_url: str
    path: str
    """The path of the MCP endpoint."""
    sse_path: str | None
    authenticator: Authenticator
    server_info: Callable[[], JsonObject]
    """Returns the current `Implementation` object, which describes the server."""

    def endpoints(self, prefix: str) -> Iterator[tuple[str, Endpoint]]:
        endpoint = self.path.rstrip("/")
        for before in {"", prefix}:
            yield f"{before}{endpoint}{CARD}", self._answer_card
            yield f"{before}{AI_CATALOG}", self._answer_catalog

    async def _answer_card(self, request: HttpRequest) -> web.Response:
        name = self._name()
        if name is None:
            return request.answer(_NO_NAME, status=404)
        return _document(request, server_card(self.server_info(), self._endpoint(), name=name), media_type=CARD_TYPE)

    async def _answer_catalog(self, request: HttpRequest) -> web.Response:
        name = self._name()
        if name is None:
            return request.answer(_NO_NAME, status=404)
        return _document(request, ai_catalog(name, f"{self._endpoint().url}{CARD}"), media_type=CATALOG_TYPE)

    def _name(self) -> str | None:
        info = self.server_info()
        website = info.get("websiteUrl")
        return qualified_name(str(info["name"]), [website if isinstance(website, str) else None, self.public_url])

    def _endpoint(self) -> PublicEndpoint:
        base = self.public_url.rstrip("/")
        return PublicEndpoint(
            url=f"{base}{self.path.rstrip('/')}",
            sse_url=None if self.sse_path is None else f"{base}{self.sse_path}",
            takes_keys=self.authenticator.takes_keys,
            takes_tokens=bool(self.authenticator.oauth),
        )


def _document(request: HttpRequest, value: JsonObject, *, media_type: str) -> web.Response:
    headers = {
        "Content-Type": media_type,
        **request.response_headers,
        # SEP-2127 (draft), "CORS Requirements" and "Caching".
        "Access-Control-Allow-Methods": "GET",
        "Access-Control-Allow-Headers": "Content-Type",
        "Cache-Control": "public, max-age=3600",
    }
    return web.Response(body=jsonrpc.encode(value), headers=headers)
