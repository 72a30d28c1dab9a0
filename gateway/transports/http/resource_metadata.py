"""Serves OAuth 2.0 Protected Resource Metadata (RFC 9728), which points clients to the authorization server.

RFC 9728 §3.1 inserts the well-known path before the path of the endpoint. A proxy that publishes the gateway below a
path prefix might not forward this URL. Therefore challenges use a second URL of the document, below the prefix.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from gateway.access.auth_error import NO_CHALLENGE, Challenge
from gateway.access.authenticator import Authenticator
from gateway.access.jose import ALGORITHMS
from gateway.catalog.catalog import View
from gateway.json_types import Json
from gateway.transports.http.forwarded import ClientEndpoint
from gateway.transports.http.request import Endpoint, HttpRequest

FindView = Callable[[str], View | None]

VIEW: Final = "/{view}"
WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


class ResourceMetadata(msgspec.Struct, frozen=True, kw_only=True):
    authenticator: Authenticator
    path: str
    """The path of the MCP endpoint."""
    find_view: FindView
    others: tuple[str, ...] = ()

    def challenge(
        self, client_endpoint: ClientEndpoint, path: str, name: str | None, *, scopes: frozenset[str]
    ) -> Challenge:
        """Return the `WWW-Authenticate` challenge for a path, with `scopes` and the scopes of the view `name`."""
        oauth = self.authenticator.oauth
        view = None if name is None else self.find_view(name)
        if name is not None:
            path = path.rstrip("/").removesuffix(f"/{name}")
        if view is not None:
            scopes |= view.access.scopes
        if not oauth:
            return Challenge(scopes=sorted(scopes)) if scopes else NO_CHALLENGE
        resource = next((other for other in self.others if path.rstrip("/").endswith(other)), self.path)
        suffix = "" if view is None else f"/{view.name}"
        url = f"{client_endpoint.base_url}{WELL_KNOWN}{resource.rstrip('/')}{suffix}"
        return Challenge(
            metadata_url=url, scopes=(*(each for entry in oauth for each in entry.required_scopes), *sorted(scopes))
        )

    def endpoints(self, prefix: str) -> Iterator[tuple[str, Endpoint]]:
        documents = {"": self.path, **{resource.rstrip("/"): resource for resource in (self.path, *self.others)}}
        for suffix, resource in documents.items():
            for place in {WELL_KNOWN + suffix, prefix + WELL_KNOWN + suffix, WELL_KNOWN + prefix + suffix}:
                yield place, partial(self._answer, resource=resource)
                if suffix or resource == "/":
                    yield f"{place}{VIEW}", partial(self._answer, resource=resource)

    async def _answer(self, request: HttpRequest, *, resource: str) -> web.Response:
        oauth = self.authenticator.oauth
        if not oauth:
            return request.answer({"error": "not found; this server does not accept access tokens"}, status=404)
        name = request.raw.match_info.get("view")
        view = None if name is None else self.find_view(name)
        if name is not None and view is None:
            return request.answer({"error": "unknown view"}, status=404)
        where = resource if view is None else f"{resource.rstrip('/')}/{view.name}"
        document: dict[str, Json] = {
            # RFC 9728 §3.3: the value must equal the URL that the client uses.
            "resource": f"{request.client_endpoint.base_url}{where}".rstrip("/"),
            "authorization_servers": [issuer for entry in oauth for issuer in entry.issuer],
            # MCP 2025-11-25 basic/authorization: access tokens must not be sent in the query.
            "bearer_methods_supported": ["header"],
        }
        own = () if view is None else sorted(view.access.scopes)
        supported = (scope for entry in oauth for scope in entry.scopes_supported or entry.required_scopes)
        if scopes := dict.fromkeys([*supported, *own]):
            document["scopes_supported"] = list(scopes)
        if all(entry.dpop == "required" for entry in oauth):
            document["dpop_signing_alg_values_supported"] = list(ALGORITHMS)
            document["dpop_bound_access_tokens_required"] = True
        return request.answer(document)
