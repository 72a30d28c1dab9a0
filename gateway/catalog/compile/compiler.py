"""Compiles the configuration into a catalog, or reports all problems.

Definitions with errors from the loader are skipped. A problem that only results from another error is not reported.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Final

from msgspec.structs import replace

from gateway.catalog.catalog import Catalog
from gateway.catalog.compile import wire_definitions
from gateway.catalog.compile.access import compile_access
from gateway.catalog.compile.context import CompileContext, mask_text
from gateway.catalog.compile.definitions import Placed, compile_definitions
from gateway.catalog.compile.sql import compile_databases
from gateway.catalog.compile.views import compile_views
from gateway.catalog.digests import (
    CLAIMS,
    INSTRUCTIONS,
    DefinitionDigest,
    DefinitionDigests,
    Name,
    digests_of,
    instructions_of,
    instructions_of_view,
)
from gateway.catalog.file_dependencies import FileDependencies
from gateway.catalog.lints import lint
from gateway.catalog.lock import Difference, Lock
from gateway.catalog.plugins import Plugins
from gateway.catalog.primitives import Primitive, Prompt, Resource, ResourceTemplate, Tool
from gateway.catalog.skill_snapshot import find_skills
from gateway.config.definition_source import not_offered, with_reviewed
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig, in_file_order
from gateway.config.models.base import entries_named_by
from gateway.config.models.content import Block
from gateway.config.models.document import LISTS, Document
from gateway.config.reading.interpolation import EXPRESSION
from gateway.config.reading.source_file import digest_of_json
from gateway.errors import ConfigError
from gateway.executors.shared_services import Services
from gateway.json_types import DocumentPath, Json
from gateway.language.uris.matcher import overlap
from gateway.net.authorization import Authorization, compile_connection, key_files
from gateway.net.tls import files_of

Check = Callable[[LoadedConfig, Problems], None]
"""Checks a section that is not compiled into the catalog, such as `auth`."""


def compile_catalog(  # noqa: PLR0913 - what a catalog is made of
    loaded: LoadedConfig,
    *,
    services: Services,
    plugins: Plugins,
    generation: int,
    dependencies: FileDependencies | None = None,
    lock: Lock | None = None,
    checks: Iterable[Check] = (),
) -> Catalog:
    """Compile every definition into a catalog. This function blocks.

    `dependencies` collects the files to watch, even if there are errors. With an enforced lock, definitions that differ
    from the lock are not compiled, and their plugins are not imported. `checks` validate other sections.

    Raises:
        ConfigError: the configuration has errors. The exception lists all problems in file order.
    """
    # Also mask access tokens that were obtained at run time.
    loaded = replace(loaded.with_repaired(), redactor=loaded.redactor.with_obtained(services.outbound_tokens.secrets))
    problems = loaded.start_problems()
    dependencies = dependencies or FileDependencies()
    skills = find_skills(loaded, problems=problems, dependencies=dependencies)
    dependencies.trees.update(plugins.open(loaded.document.plugins, problems.at("plugins")))
    has_all_plugins = problems.at("plugins").has_no_errors and not loaded.is_hidden("plugins")
    profiles = compile_databases(loaded.document.databases, problems=problems.at("databases"))
    accesses = compile_access(loaded, problems=problems, skills=skills)
    document = loaded.document
    pins = {
        name: pin for name, pin in digests_of(loaded, plugins, skills=skills).items() if name not in loaded.repaired
    }
    lock_differences: Sequence[Difference] = ()
    if lock is not None:
        is_enforced = document.server.lock == "enforce"
        lock_differences = lock.compare(pins, is_enforced=is_enforced, problems=problems, is_hidden=loaded.is_hidden)
    excluded = _excluded(lock, lock_differences, document)
    if lock is not None and lock.pins is not None and (known := excluded.keys() & loaded.reviewed.keys()):
        as_locked = digests_of(with_reviewed(loaded, known), plugins, skills=skills)
        kept = [name for name in known if as_locked[name] == lock.pins.get(name)]
        loaded = with_reviewed(loaded, kept)
        document = loaded.document
        pins |= {name: as_locked[name] for name in kept}
        excluded = {name: why for name, why in excluded.items() if name not in kept}
    for check in checks:
        check(loaded, problems)
    context = CompileContext(
        server=document.server.name,
        max_body=document.listen.max_body,
        services=services,
        plugins=plugins,
        has_all_plugins=has_all_plugins,
        redactor=loaded.redactor,
        connections=document.connections,
        authorizations=_compile_connections(loaded, services=services, problems=problems.at("connections")),
        databases=document.databases,
        profiles=profiles,
        defaults=document.defaults,
        accesses=accesses,
        versions=_versions(pins, loaded),
        dependencies=dependencies,
        has_callers=document.auth is not None or loaded.is_hidden("auth"),
    )
    for name, connection in document.connections.items():
        place = problems.at("connections", name)
        # Watch certificates and keys, so that renewed files trigger a reload.
        context.dependencies.files.update(files_of(connection.tls, place.at("tls")))
        context.dependencies.files.update(key_files(connection.auth, place.at("auth")))
    compiled = compile_definitions(loaded, context=context, problems=problems, excluded=excluded, skills=skills)
    _check_across(compiled.placed, loaded, problems=problems)
    instructions = mask_text(
        document.server.instructions, redactor=loaded.redactor, problems=problems.at("server", "instructions")
    )
    views = compile_views(loaded, compiled.primitives, context=context, problems=problems.at("views"))
    views = {
        name: replace(view, instructions=None) if instructions_of_view(name) in excluded else view
        for name, view in views.items()
    }
    if document.limits.rate_limit is not None and document.limits.rate_limit.key is not None:
        message = "`key` is allowed only in `rate_limit` of definitions and of `defaults`"
        problems.at("limits", "rate_limit", "key").error(message)
    lint(
        document,
        served=dict(compiled.placed),
        instructions=loaded.instructions,
        plugins=context.plugins.directories,
        problems=problems,
    )
    if problems.has_errors:
        raise ConfigError(in_file_order(problems, loaded.files))
    compiled = compiled.without_invalid(loaded, problems)
    # A reference to a resource that was left out would cause a false warning.
    if {path[1] for path, _ in compiled.placed if path[0] == "resources"} == document.resources.keys():
        warn_of_dangling_references(document, compiled.primitives, problems=problems)
    catalog = Catalog(
        generation=generation,
        server_info=loaded.redactor.json(wire_definitions.server_info(document.server)),
        instructions=None if INSTRUCTIONS in excluded else instructions,
        upstream_instructions={
            name: loaded.redactor.text(text)
            for name, text in loaded.instructions.items()
            if instructions_of(name) not in excluded
        },
        unavailable=loaded.unavailable,
        page_size=document.server.page_size,
        cache_ttl=document.server.cache_ttl,
        left_out=compiled.left_out,
        warnings=in_file_order(problems, loaded.files),
        redactor=loaded.redactor,
        lock_differences=tuple(lock_differences),
        pins={name: pin for name, pin in pins.items() if name not in excluded},
        limits=document.limits,
        views=views,
        databases=frozenset(profiles.values()),
    )
    return catalog.with_primitives(compiled.primitives)


def _versions(pins: DefinitionDigests, loaded: LoadedConfig) -> dict[Name, str]:
    values = cache(lambda *path: _inserted(loaded.sources.written(path), loaded.inserted) if loaded.inserted else [])
    return {name: _version(name, pin, loaded, values) for name, pin in pins.items() if name[0] in LISTS}


def _version(name: Name, pin: DefinitionDigest, loaded: LoadedConfig, values: Callable[..., Json]) -> str:
    """Digest a definition. In contrast to the lock, the digest covers the values of variables and secrets."""
    parts: dict[str, Json] = {part: digest for part, digest in pin.items() if part != "defaults"}
    config = getattr(loaded.document, name[0])[name[1]]
    paths: list[DocumentPath] = [name, *entries_named_by(config)]
    if (origin := loaded.origins.get(name)) is None and name[0] == "resources":
        # Subscribers are only notified if the content changes, and not, for example, the description.
        paths[:1] = [(*name, "mime_type"), (*name, config.backend)]
        parts["definition"] = digest_of_json([loaded.sources.written(path) for path in paths[:2]])
    elif origin is not None and origin.path[0] == "openapi":
        paths[0] = origin.path[:2]
    return digest_of_json([parts, [values(*path) for path in paths]])


def _inserted(written: Json, inserted: Mapping[str, Iterable[str]]) -> Json:
    """Return the values of all `${…}` in a part of the files."""
    if isinstance(written, str):
        return [sorted(inserted.get(found[0], ())) for found in EXPRESSION.finditer(written)]
    members = written.values() if isinstance(written, dict) else written if isinstance(written, list) else ()
    return [values for member in members if (values := _inserted(member, inserted))]


def _excluded(lock: Lock | None, lock_differences: Sequence[Difference], document: Document) -> dict[Name, str]:
    if lock is None or not lock.excludes or document.server.lock != "enforce":
        return {}
    return {each.name: each.how for each in lock_differences if each.change != "removed" and each.name[0] != CLAIMS}


def _compile_connections(
    loaded: LoadedConfig, *, services: Services, problems: Problems
) -> Mapping[str, Authorization]:
    auth = loaded.document.auth
    issuers = None if loaded.is_hidden("auth") else [] if auth is None else auth.issuers
    found = {
        name: compile_connection(
            connection, services=services, redactor=loaded.redactor, issuers=issuers, problems=problems.at(name)
        )
        for name, connection in loaded.document.connections.items()
    }
    return {name: authorization for name, authorization in found.items() if authorization is not None}


def _check_across(placed: Sequence[Placed[Primitive]], loaded: LoadedConfig, *, problems: Problems) -> None:
    # Check definitions of sources last, so that they cannot take URIs from the file.
    ordered = sorted(placed, key=lambda each: each[0] in loaded.origins)
    resources = _check_uris([(path, each) for path, each in ordered if isinstance(each, Resource)], loaded, problems)
    _check_templates([(path, each) for path, each in placed if isinstance(each, ResourceTemplate)], loaded, problems)
    keyed = {
        "tools": {each.name: each for _, each in placed if isinstance(each, Tool)},
        "resources": resources,
        "prompts": {each.name: each for _, each in placed if isinstance(each, Prompt)},
    }
    for kind, primitives in keyed.items():
        # A name from an upstream can replace an alias in the file without an error.
        own = {name for name in getattr(loaded.document, kind) if (kind, name) not in loaded.origins}
        taken = {key for key, each in primitives.items() if each.name in own} if kind == "resources" else own
        check_aliases(primitives, taken=taken, problems=problems.at(kind))


def _check_uris(placed: Iterable[Placed[Resource]], loaded: LoadedConfig, problems: Problems) -> Mapping[str, Resource]:
    """Report resources with the URI of an earlier resource, and return the first resource with each URI."""
    firsts: dict[str, Placed[Resource]] = {}
    reported: set[DocumentPath] = set()
    for path, resource in placed:
        is_own = path not in loaded.origins
        place = (*path, "uri") if is_own and path[0] == "resources" else path
        first_place, first = firsts.setdefault(resource.uri, (place, resource))
        if first is resource or path in reported:  # one error for all files of a glob
            continue
        reported.add(path)
        if is_own:
            problems.at(*place).error(f"`resources.{first.name}` already has the URI `{resource.uri}`")
        else:
            problems.at(*path, "uri").error(not_offered(loaded, path, first=first_place))
    return {uri: resource for uri, (_, resource) in firsts.items()}


def _check_templates(placed: Sequence[Placed[ResourceTemplate]], loaded: LoadedConfig, problems: Problems) -> None:
    """Report templates of upstreams that the files define too, and warn about templates that overlap."""
    # Iterate in reverse, so that the first of several equal templates is used.
    own = {each.uri_template: path for path, each in reversed(placed) if path not in loaded.origins}
    # Compare only with templates from the files, because templates of upstreams have no order of precedence.
    ordered: list[ResourceTemplate] = []
    for path, template in placed:
        place = problems.at(*path, "uri")
        if path in loaded.origins and (taken := own.get(template.uri_template)) is not None:
            place.error(not_offered(loaded, path, first=(*taken, "uri")))
            continue
        if first := next((each for each in ordered if overlap(template.uri_template, each.uri_template)), None):
            what = f"`{template.uri_template}` overlaps with `{first.uri_template}` of `resources.{first.name}`"
            place.warning(f"{what}, which takes precedence")
        if template.rank is None and len(ordered) < _MAX_COMPARED:
            ordered.append(template)


_MAX_COMPARED: Final = 100
"""Maximum number of templates that each template is compared with."""


def warn_of_dangling_references(document: Document, served: Iterable[Primitive], *, problems: Problems) -> None:
    """Warn about references to resources that match no URI and no template in `served`."""
    templates = [each.uri_template for each in served if isinstance(each, ResourceTemplate)]
    uris = {each.uri for each in served if isinstance(each, Resource)}

    @cache
    def is_served(uri: str) -> bool:
        candidates = chain(templates, uris) if "{" in uri else templates
        return uri in uris or any(overlap(uri, each) for each in candidates)

    for uri, place in _references(document, problems):
        # A template that starts with a variable can expand to any URI.
        if uri.partition("{")[0] and not is_served(uri):
            place.warning("no resource has this URI")


def check_aliases(primitives: Mapping[str, Primitive], *, taken: Container[str], problems: Problems) -> None:
    """Report each alias that is also the name of a primitive (`taken`) or an alias of another primitive."""
    aliases: dict[str, str] = {}
    for key, primitive in primitives.items():
        for index, alias in enumerate(primitive.aliases):
            place = problems.at(primitive.name, "aliases", index)
            if alias in taken:
                place.error(f"`{alias}` is already a name, so it cannot be an alias")
            elif (first := aliases.setdefault(alias, key)) != key:
                place.error(f"`{alias}` is already an alias of `{first}`")


def _references(document: Document, problems: Problems) -> Iterator[tuple[str, Problems]]:
    for name, tool in document.tools.items():
        yield from _in_blocks(tool.content or [], problems.at("tools", name, "content"))
    for name, prompt in document.prompts.items():
        for index, message in enumerate(prompt.messages or []):
            yield from _in_blocks(message.blocks, problems.at("prompts", name, "messages", index, message.role))


def _in_blocks(blocks: Iterable[Block], problems: Problems) -> Iterator[tuple[str, Problems]]:
    for index, block in enumerate(blocks):
        if block.resource is not None and block.resource.is_reference:
            yield block.resource.uri, problems.at(index, "resource", "uri")
