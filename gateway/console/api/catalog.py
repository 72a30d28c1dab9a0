"""`/-/api/catalog` lists all definitions, and shows how a definition is listed in each protocol revision."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
from aiohttp import web

from gateway.catalog.primitives import Primitive, Tool
from gateway.config.secrets.literal_secrets import masked_document
from gateway.config.secrets.redactor import LiveRedactor
from gateway.console.api.catalog_entries import KINDS, SECTIONS, CatalogEntry, CatalogSnapshot, counts, entries
from gateway.console.api.config import ConfigApi
from gateway.console.console import READ, Route
from gateway.console.responses import error_response, json_response, json_response_by_thread
from gateway.json_types import Json, JsonObject
from gateway.reload.pipeline import ReloadPipeline
from gateway.transports.errors import HttpError
from gateway.transports.http.request import HttpRequest
from gateway.upstreams.source import UpstreamSource
from gateway.wire import downgrade
from gateway.wire.revisions import LEGACY, MODERN

_CUT: Final[Mapping[str, Callable[[JsonObject, str], JsonObject]]] = {
    "tool": downgrade.tool,
    "resource": downgrade.resource,
    "template": downgrade.resource,
    "prompt": downgrade.prompt,
}
_MAX_SEARCHED: Final = 256
_TOO_LONG: Final = HttpError(status=400, message=f"`q` must have at most {_MAX_SEARCHED} characters")
_NO_ENTRY: Final = HttpError(status=404, message="Unknown entry")


class CatalogApi(msgspec.Struct, frozen=True, kw_only=True):
    config: ConfigApi
    pipeline: ReloadPipeline
    upstreams: UpstreamSource
    redactor: LiveRedactor

    def routes(self) -> Iterator[Route]:
        yield "/catalog", READ, self._catalog
        yield "/catalog/{kind}", READ, self._definition

    def counts(self, request: HttpRequest) -> dict[str, int]:
        return counts(self._snapshot(request))

    async def _catalog(self, request: HttpRequest) -> web.Response:
        query = dict(request.raw.query)
        if len(query.get("q", "")) > _MAX_SEARCHED:
            return error_response(_TOO_LONG, request)
        snapshot, redactor = self._snapshot(request), self.redactor
        whole = snapshot.served.catalog

        def made() -> Json:
            return redactor.json(
                {
                    "generation": snapshot.current.generation,
                    "entries": [each.facts for each in entries(snapshot) if _fits(each, query)],
                    "tags": sorted({tag for primitive in whole.primitives() for tag in primitive.tags}),
                    "views": list(whole.views),
                }
            )

        return await json_response_by_thread(made, request)

    async def _definition(self, request: HttpRequest) -> web.Response:
        kind, name = request.raw.match_info["kind"], request.raw.query.get("name", "")
        snapshot = self._snapshot(request)
        # Search in a thread, because a catalog can have ten thousand entries.
        found = await asyncio.to_thread(_found, snapshot, kind, name) if kind in KINDS else None
        if found is None:
            return error_response(_NO_ENTRY, request)
        definition, written = _written(found, snapshot), await self.config.written()
        answer = {
            "entry": found.facts,
            "definitions": _definitions(found),
            "yaml": written.excerpt((SECTIONS[kind], found.key)),
            "limits": {} if found.primitive is None else _limits(found.primitive),
            "examples": definition.get("tests", []),
        }
        return json_response(self.redactor.json(answer), request)

    def _snapshot(self, request: HttpRequest) -> CatalogSnapshot:
        return CatalogSnapshot(
            served=self.pipeline.served,
            current=self.pipeline.store.current,
            upstreams={name: server.status() for name, server in self.upstreams.servers.items()},
            identity=request.identity,
        )


def _found(snapshot: CatalogSnapshot, kind: str, name: str) -> CatalogEntry | None:
    """Return the entry with this name or URI. A matching URI takes precedence over a matching name."""
    named = [each for each in entries(snapshot) if each.kind == kind and each.is_named(name)]
    return next((each for each in named if each.facts.get("uri") == name), named[0] if named else None)


def _fits(entry: CatalogEntry, query: Mapping[str, str]) -> bool:
    facts = entry.facts
    words = query.get("q", "").casefold().split()
    text = " ".join(str(facts.get(name, "")) for name in ("name", "uri", "title", "description")).casefold()
    return (
        query.get("kind", facts["kind"]) == facts["kind"]
        and ("tag" not in query or query["tag"] in facts["tags"])
        and ("view" not in query or query["view"] in facts["views"])
        and ("offered" not in query or (query["offered"] == "true") is facts["offered"])
        and all(word in text for word in words)
    )


def _definitions(entry: CatalogEntry) -> dict[str, Json]:
    if entry.primitive is None:
        return {}
    cut, definition = _CUT[entry.kind], entry.primitive.definition
    return {revision: cut(definition, revision) for revision in (*LEGACY, *MODERN)}


def _limits(primitive: Primitive) -> dict[str, Json]:
    limits: dict[str, Json] = {
        "timeoutMs": round(primitive.timeout.total_seconds() * 1000),
        "concurrency": primitive.concurrency,
        "queue": primitive.queue,
    }
    if primitive.rate_limit is not None:
        limits |= {f"rate_limit.{name}": str(value) for name, value in primitive.rate_limit if value is not None}
    if isinstance(primitive, Tool):
        limits["confirm"] = primitive.confirm is not None
        limits["task"] = primitive.task is not None
    return limits


def _written(entry: CatalogEntry, snapshot: CatalogSnapshot) -> JsonObject:
    section = getattr(snapshot.served.document, SECTIONS[entry.kind], None)
    definition = section.get(entry.key) if isinstance(section, Mapping) else None
    return {} if definition is None else masked_document(definition)
