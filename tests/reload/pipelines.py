"""A reload pipeline without listeners."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from gateway.access.authenticator import Authenticator
from gateway.access.introspection import PostResponse
from gateway.access.issuer import FetchError
from gateway.audit.recorder import AuditRecorder
from gateway.config.definition_source import DefinitionSource
from gateway.config.loader import load
from gateway.config.secrets.redactor import LiveRedactor
from gateway.errors import ConfigError
from gateway.executors.shared_services import running_services
from gateway.json_types import JsonObject
from gateway.reload.pipeline import ReloadPipeline, gc_paused


async def _nothing_to_send(url: str, headers: Mapping[str, str], body: bytes) -> PostResponse:
    raise FetchError(url)


async def _nothing_to_fetch(url: str) -> JsonObject:
    raise ConnectionError(url)


@asynccontextmanager
async def opened(
    path: Path,
    *,
    grace: timedelta = timedelta(0),
    sources: Sequence[DefinitionSource] = (),
) -> AsyncIterator[ReloadPipeline]:
    """Serve a file until the context ends."""
    async with running_services() as services:
        pipeline = ReloadPipeline(
            path,
            sources=sources,
            services=services,
            authenticator=Authenticator(_nothing_to_fetch, post=_nothing_to_send, key=b""),
            audit=AuditRecorder(key=b"", generation=lambda: 0),
            grace=grace,
            redactor=LiveRedactor(),
        )
        with gc_paused():  # as in a daemon
            loaded = [load(path)]
        await pipeline.open(loaded.pop())  # frees it after compilation
        yield pipeline
        await pipeline.close()


async def reload(pipeline: ReloadPipeline) -> None:
    """Reload the files.

    Raises:
        ConfigError: The files cannot be served.
    """
    pipeline.swap(await pipeline.load_and_compile())
    pipeline.announce()


async def refused(pipeline: ReloadPipeline) -> list[str]:
    """Reload invalid files and return their problems."""
    try:
        await reload(pipeline)
    except ConfigError as error:
        return [problem.message for problem in error.errors]
    raise AssertionError("was served")
