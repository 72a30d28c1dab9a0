"""From what the operator wrote to what is served: the whole catalog, or every mistake in the files.

A definition with a mistake does not stop the others: all of them are compiled, and all mistakes are reported together,
those that the loader found among them.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from typing import Final, TypeVar

from gateway.catalog import definitions
from gateway.catalog.access import compile_access
from gateway.catalog.aliases import compile_aliases
from gateway.catalog.fingerprints import fingerprints
from gateway.catalog.footprint import Footprint
from gateway.catalog.lints.linter import lint
from gateway.catalog.lock import Change, Difference, Lock
from gateway.catalog.overlap import overlap
from gateway.catalog.pins import INSTRUCTIONS, Name, pins_of
from gateway.catalog.plugins.plugins import Plugins
from gateway.catalog.primitives import (
    CallLimits,
    Catalog,
    LeftOut,
    Primitive,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
    deciding_scopes,
)
from gateway.catalog.prompts import compile_prompt
from gateway.catalog.references import warn_of_dangling_references
from gateway.catalog.requirements import unmet
from gateway.catalog.resources import CompiledResources, compile_resource
from gateway.catalog.silence import silenced, silenced_text
from gateway.catalog.tools import compile_tool
from gateway.catalog.workbench import Workbench, is_sound
from gateway.config.backends import Connection
from gateway.config.definitions import Definition
from gateway.config.document import Document
from gateway.config.loader import LoadedConfig
from gateway.config.primitives import Resource as ResourceConfig
from gateway.config.primitives import Tool as ToolConfig
from gateway.config.problems import Problems
from gateway.config.server import Limits, SamplingLimits, Shares
from gateway.errors import ConfigError, Problem
from gateway.executors.http.executor import check_connection
from gateway.executors.http.tls import files_of
from gateway.executors.services import Services

Config = TypeVar("Config", bound=Definition)
Compiled = TypeVar("Compiled")

Check = Callable[[LoadedConfig, Problems], None]
"""Looks at what the catalog is not made of."""

_QUEUE: Final = 64
_QUEUE_IN_ALL: Final = 1024
_LEFT_OUT: Final = Connection(base_url="https://left-out.invalid")
"""Stands for a connection with a mistake in it, which has been reported and is not one of who names it."""


def compile_catalog(  # noqa: PLR0913 - what a catalog is made of
    loaded: LoadedConfig,
    *,
    services: Services,
    plugins: Plugins,
    generation: int,
    environ: Mapping[str, str] = os.environ,
    footprint: Footprint | None = None,
    lock: Lock | None = None,
    checks: Iterable[Check] = (),
) -> Catalog:
    """Compile every definition; blocking. Doubts that are no reason to refuse are in the catalog's `warnings`.

    `footprint` is filled in, even if there are mistakes. With a lock that is enforced, what is not as it was locked is
    left out, without a look at it: not even its plugin is imported. What `checks` find joins the same report.

    Raises:
        ConfigError: there are mistakes; it carries all of them, the loader's too, in the order of the files.
    """
    problems = loaded.start_problems()
    bench = _workbench(
        loaded, services=services, plugins=plugins, footprint=footprint or Footprint(), problems=problems
    )
    document = loaded.document
    pins = pins_of(loaded, plugins)
    unlike: Sequence[Difference] = ()
    if lock is not None:
        unlike = lock.compare(pins, is_enforced=document.server.lock == "enforce", problems=problems)
    withheld = _withheld(lock, unlike, document)
    parts = _Parts(bench, environ=environ, withheld=withheld, problems=problems)
    for check in checks:
        check(loaded, problems)
    for name, connection in document.connections.items():  # nothing need use one yet
        place = problems.at("connections", name)
        check_connection(connection, place)
        bench.footprint.files.update(files_of(connection.tls, place.at("tls")))
    lists = _compile_lists(parts, loaded, problems=problems)
    instructions = silenced_text(
        document.server.instructions, redactor=loaded.redactor, problems=problems.at("server", "instructions")
    )
    if problems.has_errors:
        raise ConfigError(_in_file_order(problems, loaded))
    if lists.has_all_resources:
        warn_of_dangling_references(document, served=lists.uris, problems=problems)
    lint(document, tools=lists.tools, prompts=lists.prompts, plugins=bench.plugins.directories, problems=problems)
    return Catalog(
        generation=generation,
        server_info=loaded.redactor.json(definitions.server_info(document.server)),
        instructions=None if INSTRUCTIONS in withheld else instructions,
        page_size=document.server.page_size,
        cache_ttl=document.server.cache_ttl,
        tools=lists.tools,
        resources=lists.resources,
        resource_templates=lists.templates,
        prompts=lists.prompts,
        aliases=lists.aliases,
        scopes=deciding_scopes(lists.primitives()),
        left_out=tuple(parts.left_out),
        warnings=_in_file_order(problems, loaded),
        redactor=loaded.redactor,
        unlike=tuple(unlike),
        pins={name: pin for name, pin in pins.items() if name not in withheld},
        limits=_call_limits(document.limits),
        fingerprints=fingerprints(
            tools=lists.tools, resources=lists.resources, templates=lists.templates, prompts=lists.prompts
        ),
    )


def _withheld(lock: Lock | None, unlike: Sequence[Difference], document: Document) -> dict[Name, str]:
    """What must not be compiled, and why: what was added, or is not what it was, where the lock is enforced."""
    if lock is None or not lock.withholds or document.server.lock != "enforce":
        return {}
    return {each.name: each.how for each in unlike if each.change is not Change.REMOVED}


def _call_limits(limits: Limits) -> CallLimits:
    at_once, waiting = limits.concurrency or Shares(), limits.queue or Shares()
    return CallLimits(
        rate_limit=limits.rate_limit,
        of_caller=None if at_once.per_caller is None else (at_once.per_caller, waiting.per_caller or _QUEUE),
        of_all=None if at_once.in_all is None else (at_once.in_all, waiting.in_all or _QUEUE_IN_ALL),
        sampling=limits.sampling or SamplingLimits(),
    )


def _workbench(
    loaded: LoadedConfig, *, services: Services, plugins: Plugins, footprint: Footprint, problems: Problems
) -> Workbench:
    footprint.trees.update(plugins.open(loaded.document.plugins, problems.at("plugins")))
    has_all_plugins = is_sound(problems.at("plugins")) and not loaded.may_hold("plugins")
    return Workbench(
        services=services,
        plugins=plugins,
        unheard=None if has_all_plugins else loaded.start_problems(),
        redactor=loaded.redactor,
        connections=_connections(loaded),
        defaults=loaded.document.defaults,
        accesses=compile_access(
            loaded.document,
            may_have_auth=loaded.document.auth is not None or loaded.may_hold("auth"),
            problems=problems,
        ),
        footprint=footprint,
    )


def _connections(loaded: LoadedConfig) -> Mapping[str, Connection]:
    document = loaded.document
    callers = [
        config.http
        for config in chain[ToolConfig | ResourceConfig](document.tools.values(), document.resources.values())
    ]
    named = {http.connection for http in callers if http is not None and http.connection is not None}
    missing = (name for name in named - document.connections.keys() if loaded.may_hold("connections", name))
    return {**document.connections, **dict.fromkeys(missing, _LEFT_OUT)}


class _Parts:
    """Compiles the definitions of each kind, but for those that the lock withholds, or whose `requires` is unmet."""

    def __init__(
        self, bench: Workbench, *, environ: Mapping[str, str], withheld: Mapping[Name, str], problems: Problems
    ) -> None:
        self._bench = bench
        self._environ = environ
        self._withheld = withheld
        self._problems = problems
        self.left_out = [
            LeftOut(kind=kind, name=name, reason=reason, is_locked_out=True)
            for (kind, name), reason in withheld.items()
        ]

    def compile(
        self, kind: str, configs: Mapping[str, Config], compile_one: Callable[..., Compiled | None]
    ) -> dict[str, Compiled]:
        done: dict[str, Compiled] = {}
        for name, config in configs.items():
            if (kind, name) in self._withheld:
                continue
            place = self._problems.at(kind, name)
            reason = unmet(config.requires, environ=self._environ)
            if reason is not None:
                self.left_out.append(LeftOut(kind=kind, name=name, reason=reason))
            elif (compiled := compile_one(name, config, problems=place, bench=self._bench)) is not None:
                done[name] = compiled
        return done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lists:
    """What is on offer, of each kind."""

    tools: Mapping[str, Tool]
    resources: Mapping[str, Resource]
    templates: tuple[ResourceTemplate, ...]
    prompts: Mapping[str, Prompt]
    aliases: Mapping[str, Mapping[str, str]]
    has_all_resources: bool
    """Whether every definition of `resources:` is among them."""

    @property
    def uris(self) -> tuple[str, ...]:
        """Of resources, and the templates of URIs."""
        return (*(template.uri_template for template in self.templates), *self.resources)

    def primitives(self) -> Iterator[Primitive]:
        return chain[Primitive](self.tools.values(), self.resources.values(), self.templates, self.prompts.values())


def _compile_lists(parts: _Parts, loaded: LoadedConfig, *, problems: Problems) -> _Lists:
    document, silence = loaded.document, partial(silenced, redactor=loaded.redactor)
    in_tools, in_resources, in_prompts = (problems.at(kind) for kind in ("tools", "resources", "prompts"))
    tools = silence(parts.compile("tools", document.tools, compile_tool), problems=in_tools)
    compiled = parts.compile("resources", document.resources, compile_resource)
    prompts = silence(parts.compile("prompts", document.prompts, compile_prompt), problems=in_prompts)
    resources = silence(_by_uri(compiled, problems=in_resources), problems=in_resources)
    templates = dict(enumerate(template for each in compiled.values() for template in each.templates))
    templates = silence(templates, problems=in_resources)
    _warn_of_overlaps(tuple(templates.values()), problems=in_resources)
    return _Lists(
        tools=tools,
        resources=resources,
        templates=tuple(templates.values()),
        prompts=prompts,
        aliases={
            "tools": compile_aliases(tools, taken=document.tools, problems=in_tools),
            "resources": compile_aliases(resources, taken=resources, problems=in_resources),
            "prompts": compile_aliases(prompts, taken=document.prompts, problems=in_prompts),
        },
        has_all_resources=len(compiled) == len(document.resources),
    )


def _by_uri(compiled: Mapping[str, CompiledResources], *, problems: Problems) -> dict[str, Resource]:
    by_uri: dict[str, Resource] = {}
    for name, each in compiled.items():
        for resource in each.resources:
            first = by_uri.setdefault(resource.uri, resource)
            if first is not resource:
                problems.at(name, "uri").error(f"`{resource.uri}` is a URI of `resources.{first.name}` too")
                break
    return by_uri


def _warn_of_overlaps(templates: Sequence[ResourceTemplate], *, problems: Problems) -> None:
    for first, second in combinations(templates, 2):
        if overlap(first.uri_template, second.uri_template):
            what = f"`{second.uri_template}` overlaps with `{first.uri_template}` of `resources.{first.name}`"
            problems.at(second.name, "uri").warning(f"{what}, which goes first")


def _in_file_order(problems: Iterable[Problem], loaded: LoadedConfig) -> tuple[Problem, ...]:
    files = {path: index for index, path in enumerate(loaded.files)}

    def position(problem: Problem) -> tuple[int, int, int]:
        place = problem.location
        return (-1, 0, 0) if place is None else (files.get(place.file, len(files)), place.line, place.column)

    return tuple(sorted(problems, key=position))
