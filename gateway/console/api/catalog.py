"""`/-/api/catalog` lists all definitions, and shows how a definition is listed in each protocol revision."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from aiohttp import web

from gateway.access.identity import Identity
from gateway.catalog.catalog import Catalog
from gateway.catalog.compile.apps import APP_MEDIA_TYPE
from gateway.catalog.primitives import Primitive, Prompt, Resource, ResourceTemplate, Skill, Tool
from gateway.catalog.skill_snapshot import key_of
from gateway.config.loader import Unavailable
from gateway.config.secrets.literal_secrets import masked_document
from gateway.config.secrets.redactor import LiveRedactor
from gateway.console.api.config import ConfigApi
from gateway.console.console import READ, Route
from gateway.console.responses import error_response, json_response, json_response_by_thread
from gateway.json_types import Json, JsonObject
from gateway.reload.candidate import Candidate, Place
from gateway.reload.pipeline import ReloadPipeline
from gateway.transports.errors import HttpError
from gateway.transports.http.request import HttpRequest
from gateway.upstreams.source import UpstreamSource
from gateway.wire import downgrade
from gateway.wire.revisions import LEGACY, MODERN

_KINDS: Final = ("tool", "resource", "template", "prompt", "skill")
_SECTIONS: Final = {"tool": "tools", "resource": "resources", "template": "resources", "prompt": "prompts", "skill": ""}
_KIND_OF_SECTION: Final = {
    "tools": "tool",
    "resources": "resource",
    "prompts": "prompt",
    "skills": "skill",
    "openapi": "tool",
}
"""The kind of the entries in each section, for definitions that are not in the catalog."""
_FILES: Final = "files"
_TEXTS: Final = ("title", "description", "annotations")
_CUT: Final[Mapping[str, Callable[[JsonObject, str], JsonObject]]] = {
    "tool": downgrade.tool,
    "resource": downgrade.resource,
    "template": downgrade.resource,
    "prompt": downgrade.prompt,
}
_MAX_SEARCHED: Final = 256
_TOO_LONG: Final = HttpError(status=400, message=f"`q` must have at most {_MAX_SEARCHED} characters")
_NO_ENTRY: Final = HttpError(status=404, message="Unknown entry")


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    served: Candidate
    """The served configuration. Its catalog includes definitions that plugins have disabled."""
    current: Catalog
    upstreams: Mapping[str, Mapping[str, Json]]
    identity: Identity
    """The identity of the caller. Its scopes determine which definitions the caller can use."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    key: str
    facts: dict[str, Json]
    primitive: Primitive | None = None


class CatalogApi(msgspec.Struct, frozen=True, kw_only=True):
    config: ConfigApi
    pipeline: ReloadPipeline
    upstreams: UpstreamSource
    redactor: LiveRedactor

    def routes(self) -> Iterator[Route]:
        yield "/catalog", READ, self._catalog
        yield "/catalog/{kind}", READ, self._definition

    def counts(self, request: HttpRequest) -> dict[str, int]:
        """Count the available entries by kind, and the `unavailable` entries. Building all entries would be slower."""
        snapshot = self._snapshot(request)
        offered = Counter(
            _kind_of(each)
            for each in snapshot.current.primitives()
            if not _is_skill_file(each) and snapshot.identity.holds(each.access.scopes)
        )
        every = sum(not _is_skill_file(each) for each in snapshot.served.catalog.primitives())
        left_out = sum(each.kind in _KIND_OF_SECTION for each in snapshot.current.left_out)
        return {
            **dict.fromkeys(_KINDS, 0),
            **offered,
            "skill": len(snapshot.current.skills),
            "unavailable": every + left_out - offered.total(),
        }

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
                    "entries": [each.facts for each in _entries(snapshot) if _fits(each, query)],
                    "tags": sorted({tag for primitive in whole.primitives() for tag in primitive.tags}),
                    "views": list(whole.views),
                }
            )

        return await json_response_by_thread(made, request)

    async def _definition(self, request: HttpRequest) -> web.Response:
        kind, name = request.raw.match_info["kind"], request.raw.query.get("name", "")
        snapshot = self._snapshot(request)
        # Search in a thread, because a catalog can have ten thousand entries.
        found = await asyncio.to_thread(_found, snapshot, kind, name) if kind in _KINDS else None
        if found is None:
            return error_response(_NO_ENTRY, request)
        definition, written = _written(found, snapshot), await self.config.written()
        answer = {
            "entry": found.facts,
            "definitions": _definitions(found),
            "yaml": written.excerpt((_SECTIONS[kind], found.key)),
            "limits": {} if found.primitive is None else _limits(found.primitive),
            "examples": definition.get("tests", []),
        }
        return json_response(self.redactor.json(answer), request)

    def _snapshot(self, request: HttpRequest) -> _Snapshot:
        return _Snapshot(
            served=self.pipeline.served,
            current=self.pipeline.store.current,
            upstreams={name: server.status() for name, server in self.upstreams.servers.items()},
            identity=request.identity,
        )


def _found(snapshot: _Snapshot, kind: str, name: str) -> _Entry | None:
    """Return the entry with this name or URI. A matching URI takes precedence over a matching name."""
    named = [
        each
        for each in _entries(snapshot)
        if each.kind == kind and name in {each.facts.get("uri"), each.facts["name"], each.key}
    ]
    return next((each for each in named if each.facts.get("uri") == name), named[0] if named else None)


def _fits(entry: _Entry, query: Mapping[str, str]) -> bool:
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


def _definitions(entry: _Entry) -> dict[str, Json]:
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


def _written(entry: _Entry, snapshot: _Snapshot) -> JsonObject:
    section = getattr(snapshot.served.document, _SECTIONS[entry.kind], None)
    definition = section.get(entry.key) if isinstance(section, Mapping) else None
    return {} if definition is None else masked_document(definition)


def _entries(snapshot: _Snapshot) -> Iterator[_Entry]:
    served = {_identifier(each) for each in snapshot.current.primitives()}
    for primitive in snapshot.served.catalog.primitives():
        if _is_skill_file(primitive):
            continue
        yield _entry(primitive, snapshot, is_enabled=_identifier(primitive) in served)
    yield from (_skill(skill, uri, snapshot) for uri, skill in snapshot.current.skills.items())
    yield from (_unavailable(each, snapshot) for each in snapshot.current.left_out if each.kind in _KIND_OF_SECTION)


def _kind_of(primitive: Primitive) -> str:
    match primitive:
        case Tool():
            return "tool"
        case ResourceTemplate():
            return "template"
        case Prompt():
            return "prompt"
        case _:
            return "resource"


def _entry(primitive: Primitive, snapshot: _Snapshot, *, is_enabled: bool) -> _Entry:
    kind, definition = _kind_of(primitive), primitive.definition
    place = _SECTIONS[kind], primitive.name
    origin = snapshot.served.places.origins.get(place)
    upstream = origin[1] if origin is not None and origin[0] == "upstreams" else None
    lacks = not snapshot.identity.holds(primitive.access.scopes)
    reason = (
        "disabled by a plugin"
        if not is_enabled
        else f"needs the scope{'s' * (len(primitive.access.scopes) > 1)} {' '.join(sorted(primitive.access.scopes))}"
        if lacks
        else _problem_of(upstream, snapshot)
    )
    named = {"uri": _uri_of(primitive), **{name: definition.get(name) for name in _TEXTS}}
    facts = {
        **_default_facts(kind, primitive.name if kind in {"tool", "prompt"} else definition["name"], snapshot, place),
        **{name: value for name, value in named.items() if value is not None},
        "tags": list(primitive.tags),
        "scopes": sorted(primitive.access.scopes),
        "views": list(_views(primitive, snapshot.served.catalog)),
        "offered": is_enabled and not lacks,
        "reason": reason,
        "takesInput": _takes_input(primitive),
    }
    if upstream is not None:
        facts |= {"backend": "upstream", "upstream": upstream}
    facts["source"] = facts["source"] or snapshot.served.places.source_of(_generator_of(primitive, snapshot))
    return _Entry(kind=kind, key=primitive.name, facts=facts, primitive=primitive)


def _generator_of(primitive: Primitive, snapshot: _Snapshot) -> tuple[str, str]:
    """Return the section and the name of the tool or skill that generated a resource."""
    if primitive.definition.get("mimeType") == APP_MEDIA_TYPE:
        return "tools", primitive.definition["name"]
    found = (each for each in snapshot.served.catalog.skills.values() if primitive.name == key_of(each.name))
    return "skills", str(next((each.index for each in found), ""))


def _skill(skill: Skill, uri: str, snapshot: _Snapshot) -> _Entry:
    facts = _default_facts("skill", skill.name, snapshot, ("skills", str(skill.index)))
    facts |= {"uri": uri, "backend": _FILES, "offered": True}
    if (description := skill.entry["frontmatter"].get("description")) is not None:
        facts["description"] = description
    return _Entry(kind="skill", key=skill.name, facts=facts)


def _unavailable(absent: Unavailable, snapshot: _Snapshot) -> _Entry:
    kind = _KIND_OF_SECTION[absent.kind]
    facts = {**_default_facts(kind, absent.name, snapshot, (absent.kind, absent.name)), "reason": absent.reason}
    # OpenAPI operations and skills have no definition that names a backend, so derive the backend from the section.
    facts["backend"] = facts["backend"] or ("http" if absent.kind == "openapi" else _FILES)
    return _Entry(kind=kind, key=absent.name, facts=facts)


def _default_facts(kind: str, name: str, snapshot: _Snapshot, place: Place) -> dict[str, Json]:
    definitions = getattr(snapshot.served.document, place[0], None)
    definition = definitions.get(place[1]) if isinstance(definitions, Mapping) else None
    return {
        "kind": kind,
        "name": name,
        "tags": [],
        "scopes": [],
        "views": [],
        "backend": None if definition is None else str(definition.backend),
        "source": snapshot.served.places.source_of(place),
        "upstream": None,
        "offered": False,
        "reason": None,
        "takesInput": False,
    }


def _views(primitive: Primitive, catalog: Catalog) -> Iterable[str]:
    names = tuple(filter(None, (primitive.name, _uri_of(primitive))))
    return (
        name for name, view in catalog.views.items() if view.holds(primitive.kind, tags=primitive.tags, names=names)
    )


def _problem_of(upstream: str | None, snapshot: _Snapshot) -> str | None:
    reason = None if upstream is None else snapshot.upstreams.get(upstream, {}).get("reason")
    return None if reason is None else f"its upstream {upstream} is down: {reason}"


def _uri_of(primitive: Primitive) -> str | None:
    match primitive:
        case Resource():
            return primitive.uri
        case ResourceTemplate():
            return primitive.uri_template
        case _:
            return None


def _is_skill_file(primitive: Primitive) -> bool:
    return isinstance(primitive, Resource) and primitive.skill is not None


def _identifier(primitive: Primitive) -> tuple[str, str]:
    return _kind_of(primitive), _uri_of(primitive) or primitive.name


def _takes_input(primitive: Primitive) -> bool:
    match primitive:
        case Tool():
            return bool(primitive.definition["inputSchema"].get("properties"))
        case Prompt():
            return bool(primitive.arguments)
        case _:
            return isinstance(primitive, ResourceTemplate)
