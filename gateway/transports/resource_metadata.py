"""Where clients learn which authorization server to ask: OAuth 2.0 Protected Resource Metadata (RFC 9728).

One document for each URL that clients may know us by. It stands below our own prefix and, for a proxy that hands the
host's well-known paths on, where the RFC puts it: between the host and that prefix. Challenges name the former, which
reaches us wherever our endpoint does.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.access.authenticator import Authenticator
from gateway.access.denial import NO_ENTRY, Entry
from gateway.json_types import Json, JsonObject
from gateway.protocol import jsonrpc
from gateway.transports.accept import JSON
from gateway.transports.trusted_proxies import Approach
from gateway.transports.visit import Visit

Endpoint = Callable[[Visit], Awaitable[web.StreamResponse]]

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceMetadata:
    """The documents of one listener."""

    authenticator: Authenticator
    path: str
    """The MCP endpoint: what the document without a path of its own is about."""
    others: tuple[str, ...] = ()
    """More paths that clients may know us by."""

    def entry(self, approach: Approach, *, path: str, scopes: frozenset[str]) -> Entry:
        """What a client needs to be let in that asked for a path, which takes these scopes beside the usual ones."""
        oauth = self.authenticator.oauth
        if oauth is None:
            return Entry(scopes=sorted(scopes)) if scopes else NO_ENTRY
        resource = next((other for other in self.others if path.rstrip("/").endswith(other)), self.path)
        url = f"{approach.base_url}{WELL_KNOWN}{resource}"
        return Entry(metadata_url=url, scopes=(*oauth.required_scopes, *sorted(scopes)))

    def endpoints(self, prefix: str) -> Iterator[tuple[str, Endpoint]]:
        """Each path at which a document stands, and what answers there."""
        documents = {"": self.path, **{resource.rstrip("/"): resource for resource in (self.path, *self.others)}}
        for suffix, resource in documents.items():
            for place in {WELL_KNOWN + suffix, prefix + WELL_KNOWN + suffix, WELL_KNOWN + prefix + suffix}:
                yield place, self._answering(resource)

    def _answering(self, resource: str) -> Endpoint:
        """Answers with the document about a path; with 404 where no authorization server is trusted."""

        async def answer(visit: Visit) -> web.StreamResponse:
            return self._answer(visit, resource)

        return answer

    def _answer(self, visit: Visit, resource: str) -> web.Response:
        oauth = self.authenticator.oauth
        if oauth is None:
            return _json({"error": "not found; this server takes no access tokens"}, visit, status=404)
        document: dict[str, Json] = {
            "resource": f"{visit.approach.base_url}{resource}".rstrip("/"),
            "authorization_servers": [oauth.issuer],
            "bearer_methods_supported": ["header"],
        }
        if scopes := oauth.scopes_supported or oauth.required_scopes:
            document["scopes_supported"] = list(scopes)
        return _json(document, visit)


def _json(value: JsonObject, visit: Visit, *, status: int = 200) -> web.Response:
    return web.Response(body=jsonrpc.encode(value), status=status, headers={"Content-Type": JSON, **visit.headers})
