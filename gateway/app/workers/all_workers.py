"""All workers of a daemon, as each of them speaks for all on the admin API."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import orjson
from aiohttp import web

from gateway.app.monitoring.metrics import DaemonMetrics
from gateway.app.workers.combined_reports import joined, metrics_of_all, readiness_of_all, status_of_all
from gateway.app.workers.siblings import RELOAD_SECONDS, Siblings
from gateway.app.workers.worker import Worker
from gateway.json_types import Json, JsonObject
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs

_PLAIN: Final = "text/plain"

Reload = Callable[[], Awaitable[JsonObject]]
AnswerConsole = Callable[[str, str, Mapping[str, str]], Awaitable[Json]]
"""Answers a method, a path of the console and a query; `ValueError` says that it is none."""


class AllWorkers:
    """This worker and its siblings."""

    def __init__(self, worker: Worker, *, health: Health, metrics: DaemonMetrics, logs: Logs, reload: Reload) -> None:
        """Ask nobody yet; all given are those of this worker alone, `reload` as SIGHUP does it."""
        self._worker: Final = worker
        self._siblings: Final = Siblings(Path(worker.directory), without=worker.number)
        self._health: Final = health
        self._metrics: Final = metrics
        self._logs: Final = logs
        self._reload_own: Final = reload
        self.console: AnswerConsole | None = None
        """Answers for this worker alone; None where the console is not served."""

    async def status(self, own: JsonObject) -> JsonObject:
        return status_of_all({self._worker.number: self._own_status(own), **await self._siblings.ask("GET", "/status")})

    async def readiness(self, own: JsonObject) -> JsonObject:
        found = await self._siblings.ask("GET", "/ready")
        return readiness_of_all([own, *(each for each in found.values() if each is not None)])

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """The metrics of all."""
        # Plain text from each, which `metrics_of_all` can parse; the form that was asked for is made of the whole.
        (own, _), found = await asyncio.gather(self._metrics.exposition(_PLAIN), self._siblings.ask("GET", "/metrics"))
        texts = [own.decode(), *(each for each in found.values() if isinstance(each, str))]
        return await asyncio.to_thread(metrics_of_all, texts, accept)

    async def reload(self, own: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
        """Reload all, this one with `own`."""
        report, found = await asyncio.gather(own(), self._siblings.ask("POST", "/reload", seconds=RELOAD_SECONDS))
        return {**report, "problems": joined([report, *filter(None, found.values())], "problems")}

    async def set_log_level(self, level: str) -> None:
        """Set the level of the siblings."""
        await self._siblings.ask("POST", f"/log-level?level={level}")

    async def ask_console(self, method: str, path: str) -> Sequence[Json]:
        """Have the siblings answer a path of the console, and return what they have."""
        found = await self._siblings.ask(method, f"/console/{path}")
        return [each for each in found.values() if each is not None]

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Answer the others for as long as the context lasts."""
        application = web.Application()
        application.router.add_get("/status", self._answer_status)
        application.router.add_get("/ready", self._answer_ready)
        application.router.add_get("/metrics", self._answer_metrics)
        application.router.add_post("/reload", self._answer_reload)
        application.router.add_post("/log-level", self._answer_log_level)
        application.router.add_route("*", "/console/{path:.+}", self._answer_console)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await runner.setup()
        path = self._worker.socket_path
        with suppress(FileNotFoundError):
            path.unlink()  # of a worker that was killed
        try:
            await web.UnixSite(runner, str(path)).start()
            yield
        finally:
            await runner.cleanup()
            path.unlink(missing_ok=True)
            if os.getppid() != self._worker.supervisor:  # which would have removed the directory
                with suppress(OSError):
                    path.parent.rmdir()

    def _own_status(self, status: JsonObject) -> JsonObject:
        return {"pid": os.getpid(), **status}

    async def _answer_status(self, _: web.Request) -> web.Response:
        return _json(self._own_status(self._health.status()))

    async def _answer_ready(self, _: web.Request) -> web.Response:
        return _json(self._health.readiness())

    async def _answer_metrics(self, _: web.Request) -> web.Response:
        text, _media_type = await self._metrics.exposition(_PLAIN)
        return _json(text.decode())

    async def _answer_reload(self, _: web.Request) -> web.Response:
        return _json(await self._reload_own())

    async def _answer_log_level(self, request: web.Request) -> web.Response:
        self._logs.set_level(request.query["level"])
        return _json({"level": self._logs.level})

    async def _answer_console(self, request: web.Request) -> web.Response:
        if self.console is None:
            return web.Response(status=404)
        try:
            return _json(await self.console(request.method, request.match_info["path"], request.query))
        except ValueError as error:
            return web.Response(status=400, text=str(error))


def _json(value: Json) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")
