"""Defines the catalog, the immutable set of served tools, resources and prompts."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property
from itertools import chain
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.bounded_map import BoundedMap
from gateway.catalog.digests import DefinitionDigests
from gateway.catalog.lock import Difference
from gateway.catalog.primitives import (
    EVERYBODY,
    Primitive,
    Prompt,
    RequiredScopes,
    Resource,
    ResourceTemplate,
    Skill,
    Tool,
    definition_digest,
    fingerprint,
)
from gateway.config.loader import Unavailable
from gateway.config.models.base import defaults_of
from gateway.config.models.server import Limits
from gateway.config.secrets.redactor import Redactor
from gateway.errors import Problem
from gateway.executors.output.sanitizer import Sanitizer
from gateway.executors.sql.pools import DatabaseProfile
from gateway.json_types import JsonObject, empty
from gateway.plugin import ListKind

Selection = Callable[[ListKind, Iterable[str], Iterable[str]], bool]
"""A compiled `include` or `exclude`. Returns whether it selects the primitive with the given kind, tags and names."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    include: Selection | None = None
    """If None, the view includes all primitives that are not excluded."""
    exclude: Selection | None = None
    instructions: str | None = None
    """If None, clients see the instructions of the whole catalog."""
    access: RequiredScopes = EVERYBODY
    add_search: "AddSearch | None" = None
    """Function that adds the search tools, for views with `search: true`."""

    def holds(self, kind: ListKind, *, tags: Iterable[str], names: Iterable[str]) -> bool:
        """Return whether the view contains a primitive. For a resource, `names` are the key and the URI."""
        tags, names = tuple(tags), tuple(names)
        if self.include is not None and not self.include(kind, tags, names):
            return False
        return self.exclude is None or not self.exclude(kind, tags, names)


def names_of(primitive: Primitive) -> tuple[str, ...]:
    match primitive:
        case Resource(name=name, uri=uri):
            return name, uri
        case ResourceTemplate(name=name, uri_template=uri_template):
            return name, uri_template
        case _:
            return (primitive.name,)


NO_LIMITS: Final = defaults_of(Limits)


# `cached_property` stores its value in `__dict__`, which a struct has only with `dict=True`.
class Catalog(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """Holds all served primitives and never changes. Mappings keep the order of the configuration file."""

    generation: int
    server_info: JsonObject
    """The server's `Implementation` object in the MCP 2026-07-28 schema."""
    instructions: str | None
    """Instructions from the configuration files. `all_instructions` also contains the instructions of upstreams."""
    upstream_instructions: Mapping[str, str] = msgspec.field(default_factory=empty)
    unavailable: Mapping[str, str] = msgspec.field(default_factory=empty)
    """Maps tool prefixes to the names of unavailable upstreams. Only contains upstreams that all callers can see."""
    page_size: int
    cache_ttl: timedelta
    tools: Mapping[str, Tool] = msgspec.field(default_factory=empty)
    resources: Mapping[str, Resource] = msgspec.field(default_factory=empty)
    resource_templates: tuple[ResourceTemplate, ...] = ()
    prompts: Mapping[str, Prompt] = msgspec.field(default_factory=empty)
    skills: Mapping[str, Skill] = msgspec.field(default_factory=empty)
    """Skills by the URI of their SKILL.md."""
    aliases: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=empty)
    """For each of "tools", "resources" and "prompts", maps old names (for resources, old URIs) to current names."""
    scopes: frozenset[str] = frozenset()
    access_digest: str = ""
    views: Mapping[str, View] = msgspec.field(default_factory=empty)
    databases: frozenset[DatabaseProfile] = frozenset()
    """The databases of the configuration with valid settings."""
    scoped_to: frozenset[str] | None = None
    """Scopes of the caller, or None if scopes do not limit this catalog."""
    view: str | None = None
    listed_tools: tuple[Tool, ...] | None = None
    """Tools that `tools/list` returns in a view with `search`. None lists all tools."""
    without_view: "Catalog | None" = None
    """The caller's catalog without the view, because tools and prompts can read resources outside the view."""
    left_out: tuple[Unavailable, ...] = ()
    warnings: tuple[Problem, ...] = ()
    redactor: Redactor
    pins: DefinitionDigests = msgspec.field(default_factory=dict)
    """Digests of the served definitions, which can be older, locked versions of the definitions of upstreams."""
    lock_differences: tuple[Difference, ...] = ()
    limits: Limits = NO_LIMITS
    fingerprints: Mapping[str, str] = msgspec.field(default_factory=empty)
    """Digest of each list as clients see it. The keys are "tools", "resources" and "prompts"."""

    @cached_property
    def all_instructions(self) -> str | None:
        """The server's instructions, followed by the instructions of each upstream with a primitive in this catalog."""
        names = {each.upstream for each in self.primitives()} if self.upstream_instructions else ()
        said = [f"## {name}\n\n{text}" for name, text in self.upstream_instructions.items() if name in names]
        return "\n\n".join([*filter(None, [self.instructions]), *said]) if said else self.instructions

    @cached_property
    def file_fingerprints(self) -> Mapping[str, str]:
        """Like `fingerprints`, but without the primitives of upstreams."""
        tools = self.tools.values() if self.listed_tools is None else self.listed_tools
        others = (each for each in self.primitives() if each.kind != "tools")
        return _fingerprints(each for each in chain[Primitive](tools, others) if not each.upstream)

    @property
    def is_part(self) -> bool:
        return self.scoped_to is not None or self.view is not None

    def where(self, predicate: Callable[[Primitive], bool]) -> "Catalog":
        """Return a copy with only the matching primitives. Aliases and scopes are not recomputed."""
        return self._listing(filter(predicate, self.primitives()))

    def with_listed_tools(self, tools: Iterable[Tool]) -> "Catalog":
        """Return a copy whose `tools/list` contains only these tools. Clients can still call all tools."""
        listed = tuple(tools)
        fingerprints = {**self.fingerprints, "tools": _fingerprints(listed)["tools"]}
        return replace(self, listed_tools=listed, fingerprints=fingerprints)

    def with_primitives(self, primitives: Iterable[Primitive]) -> "Catalog":
        """Return a copy with the given primitives, and with recomputed aliases, scopes and digests."""
        found = self._listing(primitives)
        return replace(
            found,
            aliases={
                "tools": {**_names_in_apps(found.tools), **_aliases(found.tools)},
                "resources": _aliases(found.resources),
                "prompts": _aliases(found.prompts),
            },
            scopes=frozenset(
                scope for each in found.primitives() if not each.access.is_visible for scope in each.access.scopes
            ),
            access_digest=_access_digest(found.primitives()),
        )

    def _listing(self, primitives: Iterable[Primitive]) -> "Catalog":
        primitives = tuple(primitives)
        found = replace(
            self,
            tools={each.name: each for each in primitives if isinstance(each, Tool)},
            resources={each.uri: each for each in primitives if isinstance(each, Resource)},
            resource_templates=tuple(each for each in primitives if isinstance(each, ResourceTemplate)),
            prompts={each.name: each for each in primitives if isinstance(each, Prompt)},
            skills={each.uri: each.skill for each in primitives if isinstance(each, Resource) and each.skill},
        )
        # The order of the lists, which does not depend on the order of `primitives`.
        return replace(found, fingerprints=_fingerprints(found.primitives()))

    def primitives(self) -> Iterator[Primitive]:
        return chain[Primitive](
            self.tools.values(), self.resources.values(), self.resource_templates, self.prompts.values()
        )

    @property
    def sanitizer(self) -> Sanitizer:
        return Sanitizer(redactor=self.redactor)

    @property
    def masker(self) -> Sanitizer:
        """Sanitizer that masks secrets but keeps control characters, for output that escapes control characters."""
        return Sanitizer(redactor=self.redactor, keeps_controls=True)

    def tool(self, name: str) -> Tool | None:
        return self.tools.get(name) or self.tools.get(self.aliases.get("tools", {}).get(name, ""))

    def prompt(self, name: str) -> Prompt | None:
        return self.prompts.get(name) or self.prompts.get(self.aliases.get("prompts", {}).get(name, ""))

    def uris_of(self, uri: str) -> frozenset[str]:
        """Return the current URI and all aliases of a resource."""
        aliases = self.aliases.get("resources", {})
        current = aliases.get(uri, uri)
        # Clients can be subscribed to any of these URIs.
        return frozenset({current, *(old for old, new in aliases.items() if new == current)})

    def resource(self, uri: str) -> tuple[Resource | ResourceTemplate, Mapping[str, str]] | None:
        """Return the resource or template that serves `uri`, and the values of the template's variables.

        A resource with exactly this URI takes precedence over templates. Otherwise, the first matching template in the
        configuration files is used or, failing that, the upstream template that matches most closely.
        """
        uri = self.aliases.get("resources", {}).get(uri, uri)
        if (resource := self.resources.get(uri)) is not None:
            return resource, {}
        found: tuple[ResourceTemplate, Mapping[str, str]] | None = None
        closest = (False, -1)
        for template in self.resource_templates:
            if (variables := template.match(uri)) is None:
                continue
            if template.rank is None:
                return template, variables
            if (rank := template.rank(uri)) > closest:
                found, closest = (template, variables), rank
        return found


AddSearch = Callable[[Catalog], Catalog]
"""Adds the two search tools to a catalog, and removes most other tools from `tools/list`."""


def _fingerprints(primitives: Iterable[Primitive]) -> dict[str, str]:
    digests: dict[str, list[bytes]] = {"tools": [], "resources": [], "prompts": []}
    for each in primitives:
        digests[each.kind].append(each.digest or definition_digest(each.definition))
    return {kind: fingerprint(found) for kind, found in digests.items()}


def _aliases(primitives: Mapping[str, Primitive]) -> dict[str, str]:
    return {alias: key for key, each in primitives.items() for alias in each.aliases if alias not in primitives}


def _names_in_apps(tools: Mapping[str, Tool]) -> dict[str, str]:
    """Map tool names in the app pages of upstreams to served names, except for ambiguous names."""
    counts = Counter(each.name_in_app for each in tools.values() if each.name_in_app)
    return {
        each.name_in_app: name
        for name, each in tools.items()
        if counts[each.name_in_app] == 1 and each.name_in_app not in tools
    }


def _access_digest(primitives: Iterable[Primitive]) -> str:
    # A tool, a resource and a prompt can have the same name, so the class is part of the key.
    needs = {(type(each).__name__, each.name, *sorted(each.access.scopes)) for each in primitives if each.access.scopes}
    return hashlib.sha256(repr(sorted(needs)).encode()).hexdigest()


MAX_PARTS: Final = 256
"""Maximum number of cached catalogs. The least recently used catalog is dropped."""


class CallerCatalogs:
    """Narrows the catalog to the primitives that one caller can see.

    Hidden primitives are removed, so lookups need no scope checks. A primitive with `visible: true` is always included,
    and its scopes are checked when a caller uses it.
    """

    def __init__(self) -> None:
        self._kept: Final[BoundedMap[tuple[int, str | None, frozenset[str] | None], Catalog]] = BoundedMap(MAX_PARTS)

    def of(self, catalog: Catalog, scopes: frozenset[str] | None, *, view: str | None = None) -> Catalog:
        """Return the catalog that a caller sees in the view. If `scopes` is None, the caller has all scopes."""
        # Ignore irrelevant scopes, so that many callers share one cached catalog.
        scopes = None if scopes is None or catalog.scopes <= scopes else scopes & catalog.scopes
        if scopes is None and view is None:
            return catalog
        # MCP 2026-07-28 server/tools "Capabilities": lists may depend on authorization, but not on the connection.
        key = catalog.generation, view, scopes
        if (kept := self._kept.get(key)) is None:
            # Keep the previous generation, because requests can still use it right after a reload.
            for old in [old for old, _ in self._kept.items() if old[0] < catalog.generation - 1]:
                self._kept.discard(old)
            if view is None:
                kept = scoped(catalog, scopes or frozenset())
            else:
                # All views share the catalog that was narrowed by scopes.
                kept = viewed(self.of(catalog, scopes), catalog.views[view])
            self._kept.put(key, kept)
        return kept


def scoped(catalog: Catalog, held: frozenset[str]) -> Catalog:
    """Return a copy with only the primitives that a caller with these scopes can see."""
    return replace(catalog.where(lambda each: each.access.is_listed_for(held)), scoped_to=held)


def viewed(catalog: Catalog, view: View) -> Catalog:
    """Return a copy with only the primitives that belong to the view."""
    part = replace(
        catalog.where(lambda each: view.holds(each.kind, tags=each.tags, names=names_of(each))),
        view=view.name,
        without_view=catalog,
        instructions=catalog.instructions if view.instructions is None else view.instructions,
        scopes=catalog.scopes | view.access.scopes,
    )
    return part if view.add_search is None else view.add_search(part)
