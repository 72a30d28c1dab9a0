"""`/-/api/catalog`: everything that is defined, and each definition as every revision sends it."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from aiohttp import web

from gateway.catalog.primitives import Primitive, Tool
from gateway.config.secrets.masked_document import masked_document
from gateway.console.answers import answered, answered_by_thread, refused
from gateway.console.api_path import ApiPath
from gateway.console.catalog_entries import KINDS, CatalogEntry, Offered, entries, section_of
from gateway.console.written_files import FileReader
from gateway.json_types import Json, JsonObject
from gateway.reload.pipeline import ReloadPipeline
from gateway.transports.errors import HttpError
from gateway.transports.http.request import HttpRequest
from gateway.wire import downgrade
from gateway.wire.revisions import LEGACY, MODERN

_CUT: Final[Mapping[str, Callable[[JsonObject, str], JsonObject]]] = {
    "tool": downgrade.tool,
    "resource": downgrade.resource,
    "template": downgrade.resource,
    "prompt": downgrade.prompt,
}
_MAX_SEARCHED: Final = 256
"""Characters of `q`."""
_TOO_LONG: Final = HttpError(status=400, message=f"q: {_MAX_SEARCHED} characters at the most")
_NO_ENTRY: Final = HttpError(status=404, message="There is no such entry (any more)")


class CatalogPart:
    """The part of the API about what is defined."""

    def __init__(
        self, pipeline: ReloadPipeline, files: FileReader, *, upstreams: Callable[[], Mapping[str, JsonObject]]
    ) -> None:
        self._pipeline: Final = pipeline
        self._files: Final = files
        self._upstreams: Final = upstreams

    def paths(self) -> Iterator[ApiPath]:
        yield ApiPath(path="/catalog", answer=self._catalog)
        yield ApiPath(path="/catalog/{kind}", answer=self._definition)

    async def _catalog(self, request: HttpRequest) -> web.Response:
        """Answer with all entries that fit the query; 400 if it is too long to look for it in ten thousand."""
        query = dict(request.raw.query)
        if len(query.get("q", "")) > _MAX_SEARCHED:
            return refused(_TOO_LONG, request.response_headers)
        offered, redactor = self._offered(request), self._pipeline.redactor

        def made() -> Json:
            return redactor.json(
                {
                    "generation": offered.current.generation,
                    "entries": [each.facts for each in entries(offered) if _fits(each, query)],
                    "tags": sorted({tag for primitive in offered.whole.primitives() for tag in primitive.tags}),
                    "views": list(offered.whole.views),
                }
            )

        return await answered_by_thread(made, request)

    async def _definition(self, request: HttpRequest) -> web.Response:
        """Answer with one entry and its definitions, by `?name=`: a name or a URI."""
        kind, name = request.raw.match_info["kind"], request.raw.query.get("name", "")
        offered = self._offered(request)
        found = await asyncio.to_thread(_found, offered, kind, name) if kind in KINDS else None
        if found is None:
            return refused(_NO_ENTRY, request.response_headers)
        definition, written = _written(found, offered), await self._files.written()
        answer = {
            "entry": found.facts,
            "definitions": _definitions(found),
            "yaml": written.excerpt((section_of(kind), found.key)),
            "limits": {} if found.primitive is None else _limits(found.primitive),
            "examples": definition.get("tests", []),
        }
        return answered(self._pipeline.redactor.json(answer), request)

    def _offered(self, request: HttpRequest) -> Offered:
        served = self._pipeline.served
        return Offered(
            document=served.document,
            whole=served.catalog,
            current=self._pipeline.store.current,
            places=served.places,
            upstreams=self._upstreams(),
            identity=request.identity,
        )


def _found(offered: Offered, kind: str, name: str) -> CatalogEntry | None:
    """Return the entry that a name or a URI means; an exact URI before a name that several resources share."""
    named = [each for each in entries(offered) if each.kind == kind and each.is_named(name)]
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
    """The definition as each revision has it."""
    if entry.primitive is None:
        return {}
    cut, definition = _CUT[entry.kind], entry.primitive.definition
    return {revision: cut(definition, revision) for revision in (*LEGACY, *MODERN)}


def _limits(primitive: Primitive) -> dict[str, Json]:
    rate = primitive.rate_limit
    limits: dict[str, Json] = {
        "timeoutMs": round(primitive.timeout.total_seconds() * 1000),
        "concurrency": primitive.concurrency,
        "queue": primitive.queue,
        "rate": None if rate is None else str(rate),
    }
    if isinstance(primitive, Tool):
        limits["confirm"] = primitive.confirm is not None
        limits["task"] = primitive.task is not None
    return limits


def _written(entry: CatalogEntry, offered: Offered) -> JsonObject:
    section = getattr(offered.document, section_of(entry.kind), None)
    definition = section.get(entry.key) if isinstance(section, Mapping) else None
    return {} if definition is None else masked_document(definition)
