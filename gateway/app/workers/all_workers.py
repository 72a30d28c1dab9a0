"""Forwards requests of the admin API to all workers of a daemon."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import aiohttp
import orjson
from aiohttp import web

from gateway.app.workers.combined_reports import joined, metrics_of_all, readiness_of_all, status_of_all
from gateway.app.workers.worker import SOCKET_SUFFIX, Worker, socket_path
from gateway.json_types import Json, JsonObject
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.telemetry.metrics_exposition import MetricsExposition

RELOAD_SECONDS: Final = 120.0
_RESPONSE_SECONDS: Final = 5.0
_PLAIN: Final = "text/plain"

ReadStatus = Callable[[], JsonObject]
Reload = Callable[[], Awaitable[JsonObject]]
AnswerConsole = Callable[[str, str, Mapping[str, str]], Awaitable[Json]]
"""Returns the console's records for a method, path and query. Raises ValueError if they are invalid."""


class AllWorkers:
    def __init__(self, worker: Worker, *, status: ReadStatus, metrics: MetricsExposition) -> None:
        self._worker: Final = worker
        self._siblings: Final = Siblings(Path(worker.directory), without=worker.number)
        self._status: Final = status
        self._metrics: Final = metrics

    async def status(self) -> JsonObject:
        found = await self._siblings.ask("GET", "/status")
        return status_of_all({self._worker.number: _with_pid(self._status()), **found})

    async def readiness(self, own: JsonObject) -> JsonObject:
        found = await self._siblings.ask("GET", "/ready")
        return readiness_of_all([own, *(each for each in found.values() if each is not None)])

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        # `metrics_of_all` parses plain text.
        (own, _), found = await asyncio.gather(self._metrics.exposition(_PLAIN), self._siblings.ask("GET", "/metrics"))
        texts = [own.decode(), *(each for each in found.values() if isinstance(each, str))]
        return await asyncio.to_thread(metrics_of_all, texts, accept)

    async def reload(self, own: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
        """Reload all workers. `own` reloads this one."""
        report, found = await asyncio.gather(own(), self._siblings.ask("POST", "/reload", seconds=RELOAD_SECONDS))
        return {**report, "problems": joined([report, *filter(None, found.values())], "problems")}

    async def set_log_level(self, level: str) -> None:
        await self._siblings.ask("POST", f"/log-level?level={level}")

    async def ask_console(self, method: str, path: str) -> Sequence[Json]:
        """Send a console request to the siblings. Return the responses except null."""
        found = await self._siblings.ask(method, f"/console/{path}")
        return [each for each in found.values() if each is not None]


class WorkerEndpoint:
    def __init__(  # noqa: PLR0913 - the parts that it reports
        self,
        worker: Worker,
        *,
        health: Health,
        status: ReadStatus,
        metrics: MetricsExposition,
        logs: Logs,
        reload: Reload,
        console: AnswerConsole | None,
    ) -> None:
        self._worker: Final = worker
        self._health: Final = health
        self._status: Final = status
        self._metrics: Final = metrics
        self._logs: Final = logs
        self._reload: Final = reload
        self._console: Final = console

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
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
            path.unlink()  # left by a killed worker
        try:
            await web.UnixSite(runner, str(path)).start()
            yield
        finally:
            await runner.cleanup()
            path.unlink(missing_ok=True)
            if os.getppid() != self._worker.supervisor:  # a killed supervisor leaves the directory
                with suppress(OSError):
                    path.parent.rmdir()

    async def _answer_status(self, _: web.Request) -> web.Response:
        return _json(_with_pid(self._status()))

    async def _answer_ready(self, _: web.Request) -> web.Response:
        return _json(self._health.readiness())

    async def _answer_metrics(self, _: web.Request) -> web.Response:
        text, _media_type = await self._metrics.exposition(_PLAIN)
        return _json(text.decode())

    async def _answer_reload(self, _: web.Request) -> web.Response:
        return _json(await self._reload())

    async def _answer_log_level(self, request: web.Request) -> web.Response:
        self._logs.set_level(request.query["level"])
        return _json({"level": self._logs.level})

    async def _answer_console(self, request: web.Request) -> web.Response:
        if self._console is None:
            return web.Response(status=404)
        try:
            return _json(await self._console(request.method, request.match_info["path"], request.query))
        except ValueError as error:
            return web.Response(status=400, text=str(error))


def _with_pid(status: JsonObject) -> JsonObject:
    return {"pid": os.getpid(), **status}


def _json(value: Json) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")


class Siblings:
    def __init__(self, directory: Path, *, without: int | None = None) -> None:
        """`without` is the number of a worker to skip."""
        self._directory: Final = directory
        self._without: Final = without

    async def ask(self, method: str, path: str, *, seconds: float = _RESPONSE_SECONDS) -> dict[int, Json]:
        """Send a request to each worker. Return the responses by worker, with None for failures."""
        numbers = [number for number in await asyncio.to_thread(self._numbers) if number != self._without]
        responses = await asyncio.gather(*(self._ask_one(number, method, path, seconds) for number in numbers))
        return dict(zip(numbers, responses, strict=True))

    def _numbers(self) -> list[int]:
        names = (each.stem for each in self._directory.glob(f"*{SOCKET_SUFFIX}"))
        return sorted(int(name) for name in names if name.isdigit())

    async def _ask_one(self, number: int, method: str, path: str, seconds: float) -> Json:
        # Connections are not reused, because the worker could have been replaced.
        connector = aiohttp.UnixConnector(path=str(socket_path(self._directory, number)))
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.request(method, f"http://worker{path}") as response,
            ):
                return orjson.loads(await response.read()) if response.status < 300 else None
        except (OSError, aiohttp.ClientError, TimeoutError, ValueError):
            return None
