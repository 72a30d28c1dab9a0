"""The upstreams of a file as one-shot commands need them: asked once for what they offer, or not at all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.config.loader import load
from gateway.config.settings import Settings
from gateway.errors import ConfigError, Problem, Severity
from gateway.executors.services import running_services
from gateway.upstreams.source import UpstreamSource


@asynccontextmanager
async def asked_upstreams(settings: Settings) -> AsyncIterator[UpstreamSource | None]:
    """Connect to the upstreams of the file, for at most five seconds; None where it names none, or cannot be read."""
    try:
        document = load(settings.config).document
    except ConfigError:  # reported by whoever loads it next
        document = None
    if document is None or not document.upstreams:
        yield None
        return
    async with running_services() as services:
        source = UpstreamSource(services=services, documents=None)
        try:
            await source.follow(document, lambda: None)
            yield source
        finally:
            await source.close()


def unreachable(source: UpstreamSource) -> list[Problem]:
    """A warning for each upstream that does not answer, or does not tell all its lists."""
    found = []
    for name, server in source.servers.items():
        if server.offer is None:
            reasons = [f"cannot be reached: {server.pool.reason or 'no answer in time'}"]
        else:
            reasons = [f"does not tell its {kind}: {reason}" for kind, reason in server.offer.missing.items()]
        found += [Problem(message=reason, path=f"upstreams.{name}", severity=Severity.WARNING) for reason in reasons]
    return found
