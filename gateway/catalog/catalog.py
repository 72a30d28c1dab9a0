"""The immutable set of primitives that is served. A value; the compiler makes it, and a request only looks up."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property
from itertools import chain
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.catalog.fingerprints import definition_digest, fingerprint
from gateway.catalog.lockfile.digests import DefinitionDigests
from gateway.catalog.lockfile.lock import Difference
from gateway.catalog.primitives import Primitive, Prompt, Resource, ResourceTemplate, Skill, Tool
from gateway.catalog.views import View
from gateway.config.models.base import defaults_of
from gateway.config.models.quantities import RateLimit
from gateway.config.models.server import SamplingLimits
from gateway.config.models.tasks import TaskLimits
from gateway.config.secrets.redactor import Redactor
from gateway.errors import Problem
from gateway.executors.output.sanitizer import Sanitizer
from gateway.executors.sql.pools import DatabaseProfile
from gateway.json_types import JsonObject, empty
from gateway.wire import jsonrpc
from gateway.wire.meta import META_SERVER_INFO


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `limits` that each call looks up, so that a reload changes it."""

    rate_limit: RateLimit | None = None
    of_caller: tuple[int, int] | None = None
    """The number of calls of one caller that may run at once, and that may wait."""
    of_all: tuple[int, int] | None = None
    sampling: SamplingLimits = defaults_of(SamplingLimits)
    tasks: TaskLimits = defaults_of(TaskLimits)


NO_LIMITS: Final = CallLimits()


class Unavailable(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that is not served, since its `requires` is unmet or it differs from the lock.

    Or an operation of a document that is no definition.
    """

    kind: str
    name: str
    reason: str
    is_locked_out: bool = False

    def __str__(self) -> str:
        return f"{self.kind}.{self.name} is not available here: {self.reason}"


# `dict` is for `cached_property`.
class Catalog(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """The immutable set of primitives that is served. Mappings keep file order, which is the order in lists."""

    generation: int
    server_info: JsonObject
    """`Implementation` (2026-07-28 schema): name, version, and what else the file says."""
    instructions: str | None
    """Those of the files; see `all_instructions`."""
    upstream_instructions: Mapping[str, str] = msgspec.field(default_factory=empty)
    """By the name of the upstream."""
    page_size: int
    cache_ttl: timedelta
    tools: Mapping[str, Tool] = msgspec.field(default_factory=empty)
    resources: Mapping[str, Resource] = msgspec.field(default_factory=empty)
    """By URI."""
    resource_templates: tuple[ResourceTemplate, ...] = ()
    prompts: Mapping[str, Prompt] = msgspec.field(default_factory=empty)
    skills: Mapping[str, Skill] = msgspec.field(default_factory=empty)
    """By the URI of the SKILL.md, which is a resource."""
    aliases: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=empty)
    """For "tools", "resources" (URIs) and "prompts": old name → name."""
    scopes: frozenset[str] = frozenset()
    """The scopes that decide what a caller sees."""
    access_digest: str = ""
    """A digest of the scopes that each primitive needs: while it is the same, the same scopes allow the same."""
    views: Mapping[str, View] = msgspec.field(default_factory=empty)
    """Its views, by name."""
    databases: frozenset[DatabaseProfile] = frozenset()
    """The databases whose connections are kept open."""
    searches: Mapping[str, "PutSearch"] = msgspec.field(default_factory=empty)
    """By the names of the views that have one."""
    scoped_to: frozenset[str] | None = None
    """The scopes that this part of the catalog is for; None: all of it."""
    view: str | None = None
    """The view that this part of the catalog belongs to."""
    listed_tools: tuple[Tool, ...] | None = None
    """The tools on the list, where that is not all of them: of a view with `search`."""
    beyond: "Catalog | None" = None
    """What the same caller may use outside of the view: what a tool or prompt of the view reads by itself."""
    left_out: tuple[Unavailable, ...] = ()
    warnings: tuple[Problem, ...] = ()
    """Problems that are no reason not to serve the files."""
    redactor: Redactor
    pins: DefinitionDigests = msgspec.field(default_factory=dict)
    """The digests of each definition; for one that is kept as it was locked, those of the lock."""
    lock_differences: tuple[Difference, ...] = ()
    """The differences between the files and the lock."""
    limits: CallLimits = NO_LIMITS
    fingerprints: Mapping[str, str] = msgspec.field(default_factory=empty)
    """For "tools", "resources", "prompts": a digest of what a client would see in the list."""

    @cached_property
    def result_meta(self) -> bytes:
        """`_meta` of a result: the server's info as JSON, once for all results."""
        return jsonrpc.encode({META_SERVER_INFO: self.server_info})

    @cached_property
    def all_instructions(self) -> str | None:
        """The instructions for models: of the files, then of each upstream that has a primitive in this part."""
        names = {each.upstream for each in self.primitives()} if self.upstream_instructions else ()
        said = [f"## {name}\n\n{text}" for name, text in self.upstream_instructions.items() if name in names]
        return "\n\n".join([*filter(None, [self.instructions]), *said]) if said else self.instructions

    @cached_property
    def file_fingerprints(self) -> Mapping[str, str]:
        """The fingerprints of the lists without the entries of upstreams."""
        digests: dict[str, list[bytes]] = {"tools": [], "resources": [], "prompts": []}
        tools = self.tools.values() if self.listed_tools is None else self.listed_tools
        others = (each for each in self.primitives() if each.kind != "tools")
        for each in chain[Primitive](tools, others):
            if not each.upstream:
                digests[each.kind].append(each.digest or definition_digest(each.definition))
        return {kind: fingerprint(each) for kind, each in digests.items()}

    @property
    def is_part(self) -> bool:
        """Whether there may be more than this in the whole."""
        return self.scoped_to is not None or self.view is not None

    def where(self, predicate: Callable[[Primitive], bool]) -> "Catalog":
        """The part with the primitives that fulfil the predicate; scopes and old names stay those of the whole."""
        return self._listing(filter(predicate, self.primitives()))

    def with_listed_tools(self, tools: Iterable[Tool]) -> "Catalog":
        """The same catalog with no other tools on its list; all that it has can be called."""
        listed = tuple(tools)
        digests = (each.digest or definition_digest(each.definition) for each in listed)
        return replace(self, listed_tools=listed, fingerprints={**self.fingerprints, "tools": fingerprint(digests)})

    def with_primitives(self, primitives: Iterable[Primitive]) -> "Catalog":
        """The same catalog with other primitives, in their order, and with all that follows from them."""
        found = self._listing(primitives)
        lists: dict[str, Mapping[str, Primitive]] = {
            "tools": found.tools,
            "resources": found.resources,
            "prompts": found.prompts,
        }
        return replace(
            found,
            aliases={
                **{kind: _aliases(each) for kind, each in lists.items()},
                "tools": {**_names_in_apps(found.tools), **_aliases(found.tools)},
            },
            scopes=_deciding_scopes(found.primitives()),
            access_digest=_access_digest(found.primitives()),
        )

    def _listing(self, primitives: Iterable[Primitive]) -> "Catalog":
        primitives = tuple(primitives)
        digests: dict[str, list[bytes]] = {"tools": [], "resources": [], "prompts": []}
        for each in primitives:
            digests[each.kind].append(each.digest or definition_digest(each.definition))
        return replace(
            self,
            tools={each.name: each for each in primitives if isinstance(each, Tool)},
            resources={each.uri: each for each in primitives if isinstance(each, Resource)},
            resource_templates=tuple(each for each in primitives if isinstance(each, ResourceTemplate)),
            prompts={each.name: each for each in primitives if isinstance(each, Prompt)},
            skills={each.uri: each.skill for each in primitives if isinstance(each, Resource) and each.skill},
            fingerprints={kind: fingerprint(each) for kind, each in digests.items()},
        )

    def primitives(self) -> Iterator[Primitive]:
        """All primitives in the order of the lists; resources go before templates."""
        return chain[Primitive](
            self.tools.values(), self.resources.values(), self.resource_templates, self.prompts.values()
        )

    @property
    def sanitizer(self) -> Sanitizer:
        """Sanitizes everything that goes out to clients."""
        return Sanitizer(redactor=self.redactor)

    @property
    def masker(self) -> Sanitizer:
        """Masks secrets, and leaves control characters to a display that makes them visible."""
        return Sanitizer(redactor=self.redactor, keeps_controls=True)

    def tool(self, name: str) -> Tool | None:
        return self.tools.get(name) or self.tools.get(self.aliases.get("tools", {}).get(name, ""))

    def prompt(self, name: str) -> Prompt | None:
        return self.prompts.get(name) or self.prompts.get(self.aliases.get("prompts", {}).get(name, ""))

    def uris_of(self, uri: str) -> frozenset[str]:
        """All URIs of the resource that `uri` names: its own, and its old ones."""
        aliases = self.aliases.get("resources", {})
        current = aliases.get(uri, uri)
        # A client may have subscribed under any of them.
        return frozenset({current, *(old for old, new in aliases.items() if new == current)})

    def resource(self, uri: str) -> tuple[Resource | ResourceTemplate, Mapping[str, str]] | None:
        """Find the resource for `uri`, and the variables in it: an exact URI first, then templates in file order.

        Of those of other servers, the one that fits most closely.
        """
        uri = self.aliases.get("resources", {}).get(uri, uri)
        if (resource := self.resources.get(uri)) is not None:
            return resource, {}
        found: tuple[ResourceTemplate, Mapping[str, str]] | None = None
        closest = (False, -1)
        for template in self.resource_templates:
            if (variables := template.matcher.match(uri)) is None:
                continue
            if template.rank is None:
                return template, variables
            if (rank := template.rank(uri)) > closest:
                found, closest = (template, variables), rank
        return found


PutSearch = Callable[[Catalog], Catalog]
"""Puts tools that search into a part of the catalog, in place of most of its list."""


def _aliases(primitives: Mapping[str, Primitive]) -> dict[str, str]:
    """Old name → name; an old name that is the name of another primitive now stands for that one."""
    return {alias: key for key, each in primitives.items() for alias in each.aliases if alias not in primitives}


def _names_in_apps(tools: Mapping[str, Tool]) -> dict[str, str]:
    """Name that a page uses → name; one that could mean two tools, or is a tool's own, means neither of them."""
    counts = Counter(each.name_in_app for each in tools.values() if each.name_in_app)
    return {
        each.name_in_app: name
        for name, each in tools.items()
        if counts[each.name_in_app] == 1 and each.name_in_app not in tools
    }


def _access_digest(primitives: Iterable[Primitive]) -> str:
    # With the class: a tool, a resource and a prompt may have one name.
    needs = {(type(each).__name__, each.name, *sorted(each.access.scopes)) for each in primitives if each.access.scopes}
    return hashlib.sha256(repr(sorted(needs)).encode()).hexdigest()


def _deciding_scopes(primitives: Iterable[Primitive]) -> frozenset[str]:
    # What is visible is in every part, whatever scopes a caller holds.
    return frozenset(scope for each in primitives if not each.access.is_visible for scope in each.access.scopes)
