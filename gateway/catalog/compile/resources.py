"""Compiles `resources:` into resources and resource templates."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from msgspec.structs import replace

from gateway.catalog.compile import wire_definitions
from gateway.catalog.compile.backends import (
    BACKENDS,
    cache_of,
    cached,
    compile_backend,
    described,
    file_of,
    has_answer_per_caller,
    signature_of,
)
from gateway.catalog.compile.common_fields import common_fields
from gateway.catalog.compile.completion import compile_completer, fixed_values
from gateway.catalog.compile.context import MAX_SIZE, CompileContext, refuse_caller_as_input, warn_of_unused
from gateway.catalog.compile.file_globs import compile_file_globs
from gateway.catalog.compile.relayed import RelayBackend, relayed_of
from gateway.catalog.primitives import Completer, Resource, ResourceTemplate
from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.diagnostics.problems import Problems
from gateway.config.models import definitions as models
from gateway.control_characters import visible_path
from gateway.executors.content import ABSOLUTE
from gateway.executors.files.executor import (
    FileReader,
    ServedFile,
    ServedFiles,
)
from gateway.executors.files.globs import Listing
from gateway.executors.files.regular_files import facts_of
from gateway.executors.output.contents import ContentsShaper
from gateway.executors.output.sanitizer import Sanitizer
from gateway.executors.shell.launcher import compile_launcher
from gateway.language.scope import Inputs, Scope
from gateway.language.uris.matcher import URI, compile_loose_matcher, compile_matcher
from gateway.language.uris.templates import RESERVED, Part, UriExpression, UriTemplateError, parse_uri_template

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
"""Matches only lower case, because clients normalize schemes to lower case (RFC 3986 §6.2.2.1)."""

# MCP 2026-07-28 server/resources "Common URI Schemes": clients can fetch https:// themselves.
_WEB_SCHEMES: Final = frozenset(
    {"about", "blob", "data", "file", "filesystem", "ftp", "http", "https", "javascript", "mailto", "urn", "ws", "wss"}
)
_TEXT: Final = {"type": "string"}


def compile_resource(
    name: str, config: models.Resource, *, problems: Problems, context: CompileContext
) -> Sequence[Resource | ResourceTemplate]:
    """Compile one definition. Return an empty sequence after reporting an invalid URI or function."""
    if config.files is not None:
        return _compile_files(name, config, problems=problems, context=context)
    if (relayed := relayed_of(config)) is not None:
        return (_compile_relayed(name, config, relayed, problems=problems, context=context),)
    source = config.uri or ""
    matcher = compile_matcher(source, Scope(inputs=Inputs(), problems=problems.at("uri")))
    if not problems.at("uri").has_no_errors:
        return ()  # otherwise, every use of a variable would be reported too
    variables = dict.fromkeys(matcher.variables, _TEXT)
    inputs = Inputs(schemas=variables, always_given=frozenset(variables) - matcher.optional)
    scope = context.scope(inputs, problems)
    refuse_caller_as_input(scope, config)
    signature = signature_of(config.python, problems=problems.at("python"), context=context)
    if config.python is not None and signature is None:
        return ()
    version = context.version_of("resources", name)
    max_size = config.max_size or MAX_SIZE
    backend = compile_backend(config, signature=signature, scope=scope, context=context, max_size=max_size)
    executor = cached(backend, config, version, problems=problems, context=context)
    if config.file is not None:
        version += str(facts_of(file_of(config.file, problems=problems)))
    completers = _compile_completers(config, scope=scope, context=context)
    warn_of_unused(scope, config)
    common = resource_fields(name, config, scope=scope, context=context)
    description = described(config, signature)
    uri = _with_encoded_values(source)
    if not variables:
        _check_aliases(config, problems=problems)
        definition = wire_definitions.resource_definition(name, config, description=description, uri=uri)
        return (Resource(uri=uri, executor=executor, version=version, definition=definition, **common),)
    _refuse_aliases(config, problems=problems)
    template = ResourceTemplate(
        uri_template=uri,
        match=matcher.match,
        executor=executor,
        version=version,
        completers=completers,
        definition=wire_definitions.resource_definition(name, config, description=description, uriTemplate=uri),
        **common,
    )
    return (template,)


def _compile_relayed(
    name: str, config: models.Resource, relayed: RelayBackend, *, problems: Problems, context: CompileContext
) -> Resource | ResourceTemplate:
    """Compile a resource or template of an upstream. The URI stays unchanged, even if it is invalid."""
    uri = config.uri or ""
    scope = context.scope(Inputs(schemas={URI: _TEXT}), problems)
    version = context.version_of("resources", name)
    backend = compile_backend(config, signature=None, scope=scope, context=context, max_size=MAX_SIZE)
    executor = cached(backend, config, version, problems=problems, context=context)
    common = resource_fields(name, config, scope=scope, context=context)
    if "uriTemplate" not in relayed.definition:
        definition = wire_definitions.resource_definition(name, config, description=config.description, uri=uri)
        resource = Resource(uri=uri, executor=executor, version=version, definition=definition, **common)
        # Some clients percent-encode characters that URIs do not allow, such as spaces.
        encoded = quote(uri, safe=RESERVED + "%")
        return resource if encoded == uri else replace(resource, aliases=(*resource.aliases, encoded))
    matcher = compile_loose_matcher(uri)
    definition = wire_definitions.resource_definition(name, config, description=config.description, uriTemplate=uri)
    return ResourceTemplate(
        uri_template=uri,
        match=matcher.match,
        rank=matcher.rank,
        executor=executor,
        version=version,
        completers=relayed.completers,
        definition=definition,
        **common,
    )


def resource_fields(name: str, config: models.Resource, *, scope: Scope, context: CompileContext) -> dict[str, Any]:
    """Return arguments for the constructor of a `Resource` or `ResourceTemplate`."""
    return dict(
        **common_fields("resources", name, config, scope=scope, context=context),
        contents=ContentsShaper(
            mime_type=config.mime_type,
            max_size=config.max_size or MAX_SIZE,
            sanitizer=Sanitizer(redactor=context.redactor, keeps_controls=_is_document(config)),
        ).contents,
        cache_ttl=cache_of(config),
        is_shared=not (_sees_caller(config) or scope.caller_facts or has_answer_per_caller(config, context=context)),
    )


def _is_document(config: models.Resource) -> bool:
    """Whether the content comes from the operator or an upstream. Control characters in such content are kept."""
    backend = config.backend
    return config.files is not None or backend == "upstream" or BACKENDS[backend].is_of_operator


def _sees_caller(config: models.Resource) -> bool:
    if config.files is not None:
        return False
    return BACKENDS[config.backend].sees_caller or bool(models.trait_of(config, "forward_headers"))


def _with_encoded_values(source: str) -> str:
    """Percent-encode the values of `${…}` in a URI template, so that braces in the values are not variables."""
    return "".join(part.source if isinstance(part, UriExpression) else part for part in parse_uri_template(source))


def _check_aliases(config: models.Resource, *, problems: Problems) -> None:
    for index, alias in enumerate(config.aliases):
        if not ABSOLUTE.match(alias):
            problems.at("aliases", index).error(f"`{alias}` is not a URI; aliases of a resource are its old URIs")


def _refuse_aliases(config: models.Resource, *, problems: Problems) -> None:
    if config.aliases:
        problems.at("aliases").error("an alias refers to one URI, but this definition serves several. Remove `aliases`")


def _compile_completers(config: models.Resource, *, scope: Scope, context: CompileContext) -> Mapping[str, Completer]:
    """Compile `complete`. Commands run in the resource's sandbox, because callers control the commands' input."""
    completers = {}
    launcher = None if config.shell is None else compile_launcher(config.shell, scope=scope.at("shell"))
    for name, source in config.complete.items():
        place = scope.at("complete", name)
        if name not in scope.inputs.schemas:
            known = list(scope.inputs.schemas)
            place.problems.error(f"the URI has no variable `{name}`{did_you_mean(name, known)}")
        elif completer := compile_completer(source, name=name, scope=place, context=context, launcher=launcher):
            completers[name] = completer
    return completers


def _compile_files(
    name: str, config: models.Resource, *, problems: Problems, context: CompileContext
) -> Sequence[Resource | ResourceTemplate]:
    found = _default_prefix(name, problems=problems) if config.uri is None else _own_prefix(config.uri, problems)
    globs = compile_file_globs(config.files or [], root=config.root, problems=problems, context=context, is_listed=True)
    _refuse_aliases(config, problems=problems)
    if found is None or globs is None:
        return ()
    prefix, variable = found
    # RFC 6570 §3.2.3: `+` keeps the slashes of a path.
    uri_template = f"{prefix}{{+{variable}}}"
    listing = globs.listing(at_most=config.max_files)
    _warn_of_listing(listing, config, problems=problems)
    reader = FileReader(threads=context.services.worker_threads, max_size=config.max_size or MAX_SIZE)
    files = ServedFiles(globs=globs, prefix=prefix, reader=reader)
    listed = [each for each in listing.files if files.means(each.path)]
    for each in listing.files:
        if not files.means(each.path):
            name_of = visible_path(each.path)
            problems.at("files").warning(
                f"`{name_of}` is not served: its name contains a backslash, which is a separator on other systems"
            )
    scope = context.scope(Inputs(schemas={variable: _TEXT}), problems)
    refuse_caller_as_input(scope, config)
    completers = _compile_completers(config, scope=scope, context=context)
    common = resource_fields(name, config, scope=scope, context=context)
    # Skip names that are not UTF-8, because clients could not send them back.
    paths = fixed_values([each.path for each in listed if visible_path(each.path) == each.path])
    requested = ServedFile(files=files, variable=variable)
    template = ResourceTemplate(
        uri_template=uri_template,
        match=requested.match,
        executor=requested,
        completers={variable: paths, **completers},
        definition=wire_definitions.resource_definition(
            name, config, description=config.description, uriTemplate=uri_template
        ),
        **common,
    )
    resources = (
        Resource(
            uri=(uri := files.uri_of(each.path)),
            executor=ServedFile(files=files, path=each.path),
            version=f"{config.mime_type} {each.facts}",
            definition=wire_definitions.file_definition(config, uri=uri, file=each),
            **common,
        )
        for each in listed
    )
    return (*resources, template)


def _default_prefix(name: str, *, problems: Problems) -> tuple[str, str] | None:
    """Return the URI prefix and path variable of a `files` resource without `uri`: `docs:///` and `path` for `docs`."""
    if _SCHEME.fullmatch(name) and name not in _WEB_SCHEMES:
        return f"{name}:///", "path"
    rule = "is a web scheme" if name in _WEB_SCHEMES else "is not a valid URI scheme (a-z, then a-z 0-9 + - .)"
    problems.error(f'`{name}` {rule}, so URIs cannot start with it. Set `uri`, for example "docs:///{{+path}}"')
    return None


def _own_prefix(source: str, problems: Problems) -> tuple[str, str] | None:
    try:
        parts: tuple[Part, ...] = parse_uri_template(source)
    except UriTemplateError as error:
        problems.at("uri").error(str(error))
        return None
    match parts:
        case (str(text), UriExpression(operator="+", names=(name,), has_modifier=False)) if ABSOLUTE.match(text):
            return text, name
        case _:
            problems.at("uri").error('with `files`, must be a prefix and one variable, such as "docs:///{+path}"')
            return None


def _warn_of_listing(listing: Listing, config: models.Resource, *, problems: Problems) -> None:
    at = problems.at("files")
    if not listing.files:
        at.warning("no file matches")
    if listing.is_incomplete:
        at.warning(f"more than {config.max_files} files match, so some are not listed. Increase `max_files`")
    for directory in listing.unreadable:
        at.warning(f"the directory `{visible_path(directory) or '.'}` cannot be listed")
