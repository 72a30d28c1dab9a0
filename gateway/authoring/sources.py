"""The sources of a file's definitions as one-shot commands need them: asked once for what they offer, or not at all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from gateway.config.definition_source import DefinitionSource
from gateway.config.loader import load
from gateway.config.settings import Settings
from gateway.errors import ConfigError, Problem, Severity
from gateway.executors.services import running_services
from gateway.openapi.remote import RemoteSource
from gateway.openapi.source import OpenApiSource
from gateway.upstreams.source import UpstreamSource


class AskedSources(msgspec.Struct, frozen=True, kw_only=True):
    """Upstreams, and documents with URLs, that were asked."""

    upstreams: UpstreamSource
    documents: RemoteSource

    @property
    def all(self) -> tuple[DefinitionSource, ...]:
        return self.upstreams, OpenApiSource(self.documents)

    @property
    def unreachable(self) -> list[Problem]:
        """A warning for each upstream that does not answer, or does not tell all its lists."""
        found = []
        for name, server in self.upstreams.servers.items():
            if server.offer is None:
                reasons = [f"cannot be reached: {server.pool.reason or 'no answer in time'}"]
            else:
                reasons = [f"does not tell its {kind}: {reason}" for kind, reason in server.offer.missing.items()]
            place = f"upstreams.{name}"
            found += [Problem(message=reason, path=place, severity=Severity.WARNING) for reason in reasons]
        return found


@asynccontextmanager
async def asked_sources(settings: Settings) -> AsyncIterator[AskedSources | None]:
    """Connect to the upstreams of the file, for at most five seconds, and fetch the documents that it names by URL.

    None where there are neither, or the file cannot be read.
    """
    try:
        document = load(settings.config).document
    except ConfigError:  # reported by whoever loads it next
        document = None
    has_documents = document is not None and any(each.is_remote for each in document.openapi.values())
    if document is None or not (document.upstreams or has_documents):
        yield None
        return
    async with running_services() as services:
        upstreams = UpstreamSource(services=services, documents=None)
        documents = RemoteSource(services=services, documents=None)
        try:
            await upstreams.follow(document, lambda: None)
            await documents.follow(document, lambda: None)
            yield AskedSources(upstreams=upstreams, documents=documents)
        finally:
            await documents.close()
            await upstreams.close()
