"""Loads and compiles a configuration without serving it, and finds the environment variables that it uses."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from itertools import chain
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.access.identity import ANONYMOUS, Identity
from gateway.catalog.catalog import Catalog
from gateway.catalog.compile.compiler import Check, compile_catalog
from gateway.catalog.file_dependencies import FileDependencies
from gateway.catalog.lock import read_lock
from gateway.catalog.plugins import Plugins
from gateway.catalog.store import CatalogStore
from gateway.config.definition_source import DefinitionSource, load_definitions
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig, load
from gateway.config.models.definitions import Prompt, Resource, Tool
from gateway.config.models.document import Document
from gateway.config.reading.interpolation import Variable
from gateway.config.secrets.literal_secrets import SECRET_KEY
from gateway.config.secrets.redactor import LiveRedactor
from gateway.config.settings import Settings
from gateway.errors import ConfigError
from gateway.executors.shared_services import Services, running_services
from gateway.json_types import JsonObject
from gateway.openapi.remote_documents import RemoteDocuments
from gateway.openapi.source import OpenApiSource
from gateway.protocol.dispatcher import Dispatcher
from gateway.reload.pipeline import CHECKS, gc_paused, with_identity
from gateway.state.keys import random_keys
from gateway.telemetry.logs import Logs
from gateway.transports.memory import MemoryClient
from gateway.upstreams.source import UpstreamSource

_PASSED_ON: Final = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"})
"""Variables that MCP clients pass to servers on stdio by default, according to the official SDKs."""


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    loaded: LoadedConfig
    catalog: Catalog
    services: Services

    def client(self, offered: Catalog, *, capabilities: JsonObject, identity: Identity = ANONYMOUS) -> MemoryClient:
        # Random keys are enough, because only this client uses the signatures.
        dispatcher = Dispatcher(store=CatalogStore(offered), services=self.services, keys=random_keys())
        return MemoryClient(dispatcher, capabilities=capabilities, identity=identity)


class FetchedSources(msgspec.Struct, frozen=True, kw_only=True):
    """The upstreams and remote OpenAPI documents of a configuration, with the definitions fetched from them."""

    upstreams: UpstreamSource
    documents: OpenApiSource
    loaded: LoadedConfig
    """The configuration without the fetched definitions."""
    redactor: LiveRedactor

    @property
    def all(self) -> tuple[DefinitionSource, ...]:
        return self.upstreams, self.documents

    @property
    def unreachable(self) -> Problems:
        """Warnings for upstreams that cannot be reached or do not return all lists."""
        problems = Problems(self.loaded.sources, redactor=self.loaded.redactor)
        for name, server in self.upstreams.servers.items():
            place = problems.at("upstreams", name)
            if server.lists is None:
                place.warning(f"cannot be reached: {server.pool.circuit.reason or 'no response in time'}")
                continue
            for kind, reason in server.lists.missing.items():
                place.warning(f"does not list its {kind}: {reason}")
        return problems


@contextmanager
def dry_run(
    settings: Settings,
    *,
    uses_lock: bool = True,
    checks: Sequence[Check] = (),
    sources: FetchedSources | None = None,
    dependencies: FileDependencies | None = None,
) -> Iterator[DryRun]:
    """Load and compile a file or directory. Tools cannot run, and plugins are imported but not started.

    With `uses_lock`, differences from the lock file cause warnings. `checks` are additional checks of the compiler.
    Without `sources`, upstreams have no definitions. The files that definitions use are added to `dependencies`.

    Raises:
        ConfigError: the file cannot be served. The error contains every problem and warning.
    """
    # Services that are not started are enough to compile executors, but not to run them.
    plugins, services = Plugins(), Services()
    with _loaded(settings, sources) as loaded:
        try:
            yield _compiled(loaded, services, plugins, uses_lock=uses_lock, checks=checks, dependencies=dependencies)
        finally:
            plugins.close()


@asynccontextmanager
async def offline_gateway(settings: Settings) -> AsyncIterator[DryRun]:
    """Load and compile a file, and start its services and plugins, so that tools can be called."""
    plugins = Plugins()
    async with AsyncExitStack() as stack:
        sources = await stack.enter_async_context(fetched_sources(settings))
        loaded = stack.enter_context(_loaded(settings, sources))
        services = await stack.enter_async_context(running_services(threads=loaded.document.limits.threads))
        stack.push_async_callback(plugins.stop, services.hook_threads)
        dry = _compiled(loaded, services, plugins, uses_lock=False)
        await plugins.start(services.hook_threads)
        yield dry


@asynccontextmanager
async def fetched_sources(settings: Settings) -> AsyncIterator[FetchedSources | None]:
    """Connect to the upstreams of the file for up to five seconds, and fetch the remote documents of the file.

    Yield None if the file is invalid, or has neither upstreams nor remote documents.
    """
    try:
        # Load the file to find its upstreams and documents. The caller loads the file again with their definitions.
        loaded = load(settings.config)
    except ConfigError:  # reported when the file is loaded again
        yield None
        return
    document = loaded.document
    names_some = bool(document.upstreams) or any(each.is_remote for each in document.openapi.values())
    if not names_some or loaded.start_problems().has_errors:
        yield None
        return
    redactor = LiveRedactor()
    redactor.replace(loaded.redactor)
    with _logs(settings, redactor):
        async with running_services() as services:
            upstreams = _upstreams(services)
            remote = RemoteDocuments(services=services, documents=None)
            try:
                await upstreams.follow(document, lambda: None)
                await remote.follow(document, lambda: None)
                documents = OpenApiSource(remote)
                yield FetchedSources(upstreams=upstreams, documents=documents, loaded=loaded, redactor=redactor)
            finally:
                await remote.close()
                await upstreams.close()


@contextmanager
def _loaded(settings: Settings, sources: FetchedSources | None) -> Iterator[LoadedConfig]:
    redactor = LiveRedactor() if sources is None else sources.redactor
    used = (_upstreams(Services()), OpenApiSource()) if sources is None else sources.all
    with _logs(settings, redactor) if sources is None else nullcontext():
        with gc_paused():
            definitions = load_definitions(settings.config, used)
            loaded, _ = with_identity(definitions, dependencies=FileDependencies())
        redactor.replace(loaded.redactor)
        yield loaded


def _logs(settings: Settings, redactor: LiveRedactor) -> Logs:
    return Logs(level=settings.log_level, style=settings.log_format, mask=redactor.text)


def _upstreams(services: Services) -> UpstreamSource:
    return UpstreamSource(services=services, documents=None)


def _compiled(  # noqa: PLR0913 - what a file is compiled with
    loaded: LoadedConfig,
    services: Services,
    plugins: Plugins,
    *,
    uses_lock: bool,
    checks: Sequence[Check] = (),
    dependencies: FileDependencies | None = None,
) -> DryRun:
    lock = replace(read_lock(loaded.lock_file), excludes=False) if uses_lock else None
    with gc_paused():
        catalog = compile_catalog(
            loaded,
            services=services,
            plugins=plugins,
            generation=1,
            lock=lock,
            checks=(*CHECKS, *checks),
            dependencies=dependencies,
        )
    return DryRun(loaded=loaded, catalog=catalog, services=services)


def variables_of(loaded: LoadedConfig) -> Mapping[str, Variable]:
    """Return the environment variables that the configuration refers to, or that `requires.env` or `inherit_env` lists.

    Variables that MCP clients always pass to servers, such as `PATH`, are left out.
    """
    variables = dict(loaded.variables)
    for name, variable in _named_by_definitions(loaded.document):
        variables.setdefault(name, variable)
    return {name: variable for name, variable in variables.items() if name not in _PASSED_ON}


def _named_by_definitions(document: Document) -> Iterator[tuple[str, Variable]]:
    """Yield the variables in `requires.env`, and the variables in `inherit_env` that are set in this process."""
    definitions = chain[Tool | Resource | Prompt](
        document.tools.values(), document.resources.values(), document.prompts.values()
    )
    for definition in definitions:
        names = list(definition.requires.env)
        if not isinstance(definition, Prompt) and definition.shell is not None:
            names += [name for name in definition.shell.inherit_env if name in os.environ]
        for name in names:
            yield name, Variable(is_needed=False, is_secret=SECRET_KEY.search(name) is not None)
