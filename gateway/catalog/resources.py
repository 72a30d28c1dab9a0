"""Compile a definition of `resources:` into what is served: a resource, a resource template, or both for a glob."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypedDict

from gateway.catalog import definitions
from gateway.catalog.backends import compile_backend, described, signature_of
from gateway.catalog.completion import FixedValues, compile_completer
from gateway.catalog.primitives import Access, Completer, ContentsShape, Resource, ResourceTemplate
from gateway.catalog.requirements import required_capabilities
from gateway.catalog.versions import file_version, resource_version
from gateway.catalog.workbench import MAX_SIZE, Workbench, allowance_of, is_sound, warn_of_unused
from gateway.config import primitives as models
from gateway.config.problems import Problems
from gateway.config.rates import RateLimit
from gateway.executors.content import ABSOLUTE
from gateway.executors.files.executor import (
    FileReader,
    FilesMatcher,
    ListedFile,
    RequestedFile,
    ServedFiles,
    compile_file_globs,
)
from gateway.executors.files.globs import Listing
from gateway.executors.output.contents import ContentsShaper
from gateway.executors.scope import Inputs, Scope
from gateway.executors.shell.launcher import compile_launcher
from gateway.executors.templates.expressions import did_you_mean
from gateway.executors.uris.grammar import Expression, Part, UriTemplateError, parse_uri_template
from gateway.executors.uris.matcher import compile_matcher
from gateway.json_types import JsonObject

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
"""Lower case throughout: clients write a scheme in lower case, whatever was listed (RFC 3986 §6.2.2.1)."""

_WEB_SCHEMES: Final = frozenset(
    {"about", "blob", "data", "file", "filesystem", "ftp", "http", "https", "javascript", "mailto", "urn", "ws", "wss"}
)
_TEXT: Final = {"type": "string"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledResources:
    """What one definition gives."""

    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()


def compile_resource(
    name: str, config: models.Resource, *, problems: Problems, bench: Workbench
) -> CompiledResources | None:
    """Make a definition ready; None where it was written wrongly, which is then reported."""
    if config.files is not None:
        return _compile_files(name, config, problems=problems, bench=bench)
    source = config.uri or ""
    matcher = compile_matcher(source, Scope(inputs=Inputs(), problems=problems.at("uri")))
    if not is_sound(problems.at("uri")):
        return None  # without its variables, all that names them would be reported too
    variables = dict.fromkeys(matcher.variables, _TEXT)
    inputs = Inputs(schemas=variables, always_given=frozenset(variables) - matcher.optional)
    scope = Scope(inputs=inputs, problems=problems)
    signature = signature_of(config.python, problems=problems.at("python"), bench=bench)
    max_size = config.max_size or MAX_SIZE
    executor = compile_backend(config, signature=signature, scope=scope, bench=bench, max_size=max_size)
    completers = _compile_completers(config, scope=scope, bench=bench)
    warn_of_unused(scope, at=lambda _: ("uri",))
    if executor is None:
        return None
    common = _common(name, config, bench=bench)
    version = resource_version(config, signature, problems=problems, bench=bench)
    description = described(config, signature)
    uri = _written(source)
    if not variables:
        _check_aliases(config, problems=problems)
        definition = definitions.resource_definition(name, config, uri=uri, description=description)
        resource = Resource(uri=uri, executor=executor, version=version, definition=definition, **common)
        return CompiledResources(resources=(resource,))
    _refuse_aliases(config, problems=problems)
    template = ResourceTemplate(
        uri_template=uri,
        matcher=matcher,
        executor=executor,
        version=version,
        completers=completers,
        definition=definitions.template_definition(name, config, uri_template=uri, description=description),
        **common,
    )
    return CompiledResources(templates=(template,))


class _Common(TypedDict):
    """Fields that resources and templates share."""

    name: str
    timeout: timedelta
    concurrency: int
    queue: int
    rate_limit: RateLimit | None
    ask_timeout: timedelta
    access: Access
    aliases: tuple[str, ...]
    tags: tuple[str, ...]
    required_capabilities: JsonObject
    contents: ContentsShape
    cache_ttl: timedelta | None
    is_shared: bool


def _common(name: str, config: models.Resource, *, bench: Workbench) -> _Common:
    allowance = allowance_of(config, bench=bench)
    return _Common(
        name=name,
        timeout=allowance.timeout,
        concurrency=allowance.concurrency,
        queue=allowance.queue,
        rate_limit=allowance.rate_limit,
        ask_timeout=allowance.ask_timeout,
        access=bench.access_to("resources", name),
        aliases=tuple(config.aliases),
        tags=tuple(config.tags),
        required_capabilities=required_capabilities(config.requires),
        contents=ContentsShaper(
            mime_type=config.mime_type, max_size=config.max_size or MAX_SIZE, redactor=bench.redactor
        ),
        cache_ttl=config.cache,
        is_shared=_is_shared(config),
    )


def _is_shared(config: models.Resource) -> bool:
    """A function sees who calls, and so does a server that is sent the caller's header fields."""
    return config.python is None and (config.http is None or not config.http.forward_headers)


def _written(source: str) -> str:
    """The URI or template as clients see it: what was interpolated is encoded, so that it cannot be an expression."""
    return "".join(part.source if isinstance(part, Expression) else part for part in parse_uri_template(source))


def _check_aliases(config: models.Resource, *, problems: Problems) -> None:
    for index, alias in enumerate(config.aliases):
        if not ABSOLUTE.match(alias):
            problems.at("aliases", index).error(f"`{alias}` is not a URI; a resource's old names are its old URIs")


def _refuse_aliases(config: models.Resource, *, problems: Problems) -> None:
    if config.aliases:
        problems.at("aliases").error("an alias stands for one URI; this definition serves many")


def _compile_completers(config: models.Resource, *, scope: Scope, bench: Workbench) -> Mapping[str, Completer]:
    """A command that completes is confined as the resource's own is: what it is given comes from the same callers."""
    completers = {}
    launcher = (
        None
        if config.shell is None
        else compile_launcher(config.shell, scope=scope.at("shell"), probe=bench.services.sandboxes)
    )
    for name, source in config.complete.items():
        place = scope.at("complete", name)
        if name not in scope.inputs.schemas:
            known = list(scope.inputs.schemas)
            place.problems.error(f"the URI has no variable `{name}`{did_you_mean(name, known)}")
        elif completer := compile_completer(source, name=name, scope=place, bench=bench, launcher=launcher):
            completers[name] = completer
    return completers


def _compile_files(
    name: str, config: models.Resource, *, problems: Problems, bench: Workbench
) -> CompiledResources | None:
    prefix = _default_prefix(name, problems=problems) if config.uri is None else _own_prefix(config.uri, problems)
    globs = compile_file_globs(
        config.files or [], root=config.root, problems=problems, look_at=bench.footprint.files.add
    )
    _refuse_aliases(config, problems=problems)
    if globs is not None:
        bench.footprint.globs.add(globs)
    if prefix is None or globs is None:
        return None
    listing = globs.listing(at_most=config.max_files)
    _warn_of_listing(listing, config, problems=problems)
    reader = FileReader(threads=bench.services.threads, max_size=config.max_size or MAX_SIZE)
    files = ServedFiles(globs=globs, prefix=prefix.text, reader=reader)
    common = _common(name, config, bench=bench)
    scope = Scope(inputs=Inputs(schemas={prefix.variable: _TEXT}), problems=problems)
    paths = FixedValues(tuple(definitions.displayed(found.path) for found in listing.files))
    template = ResourceTemplate(
        uri_template=prefix.template,
        matcher=FilesMatcher(files, prefix.variable),
        executor=RequestedFile(files, prefix.variable),
        completers={prefix.variable: paths, **_compile_completers(config, scope=scope, bench=bench)},
        definition=definitions.template_definition(
            name, config, uri_template=prefix.template, description=config.description
        ),
        **common,
    )
    resources = tuple(
        Resource(
            uri=(uri := files.uri_of(found.path)),
            executor=ListedFile(files, found.path),
            version=file_version(config, found.facts),
            definition=definitions.file_definition(config, uri=uri, file=found),
            **common,
        )
        for found in listing.files
    )
    return CompiledResources(resources=resources, templates=(template,))


@dataclass(frozen=True, slots=True)
class _Prefix:
    """What the URIs of a glob's files begin with, and the variable that stands for the rest."""

    text: str
    variable: str

    @property
    def template(self) -> str:
        return f"{self.text}{{+{self.variable}}}"


def _default_prefix(name: str, *, problems: Problems) -> _Prefix | None:
    if _SCHEME.fullmatch(name) and name not in _WEB_SCHEMES:
        return _Prefix(f"{name}:///", "path")
    rule = "is a scheme of the web" if name in _WEB_SCHEMES else "is not a URI scheme (a-z, then a-z 0-9 + - .)"
    problems.error(f'`{name}` {rule}, so that the files need a `uri` such as "docs:///{{+path}}"')
    return None


def _own_prefix(source: str, problems: Problems) -> _Prefix | None:
    try:
        parts: tuple[Part, ...] = parse_uri_template(source)
    except UriTemplateError as error:
        problems.at("uri").error(str(error))
        return None
    match parts:
        case (str(text), Expression(operator="+", variables=(variable,))) if (
            ABSOLUTE.match(text) and not variable.has_modifier
        ):
            return _Prefix(text, variable.name)
        case _:
            problems.at("uri").error('with `files` expected a prefix and one variable, such as "docs:///{+path}"')
            return None


def _warn_of_listing(listing: Listing, config: models.Resource, *, problems: Problems) -> None:
    at = problems.at("files")
    if not listing.files:
        at.warning("no file matches")
    if listing.is_cut:
        at.warning(f"more than {config.max_files} files match; the others are not listed (`max_files`)")
    for directory in listing.unreadable:
        at.warning(f"the directory `{definitions.displayed(directory) or '.'}` cannot be listed")
