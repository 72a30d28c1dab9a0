"""Forwards requests of the admin API to all workers of a daemon."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import orjson
from aiohttp import web

from gateway.app.parts import App
from gateway.app.workers.combined_reports import joined, metrics_of_all, readiness_of_all, status_of_all
from gateway.app.workers.worker import SOCKET_SUFFIX, Worker, socket_path
from gateway.json_types import Json, JsonObject
from gateway.telemetry.metrics import MetricsExposition

RELOAD_SECONDS: Final = 120.0
_RESPONSE_SECONDS: Final = 5.0
_PLAIN: Final = "text/plain"
_CONSOLE: Final = "/console/"


class AllWorkers:
    def __init__(self, worker: Worker, *, status: Callable[[], JsonObject], metrics: MetricsExposition) -> None:
        self._worker: Final = worker
        self._ask: Final = partial(ask_workers, Path(worker.directory), without=worker.number)
        self._status: Final = status
        self._metrics: Final = metrics

    async def status(self) -> JsonObject:
        found = await self._ask("GET", "/status")
        return status_of_all({self._worker.number: _with_pid(self._status()), **found})

    async def readiness(self, own: JsonObject) -> JsonObject:
        found = await self._ask("GET", "/ready")
        return readiness_of_all([own, *(each for each in found.values() if each is not None)])

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        # `metrics_of_all` parses plain text.
        (own, _), found = await asyncio.gather(self._metrics.exposition(_PLAIN), self._ask("GET", "/metrics"))
        texts = [own.decode(), *(each for each in found.values() if isinstance(each, str))]
        return await asyncio.to_thread(metrics_of_all, texts, accept)

    async def reload(self, own: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
        """Reload the configuration of all workers. `own` reloads this worker."""
        report, found = await asyncio.gather(own(), self._ask("POST", "/reload", seconds=RELOAD_SECONDS))
        return {**report, "problems": joined([report, *filter(None, found.values())], "problems")}

    async def set_log_level(self, level: str) -> None:
        await self._ask("POST", f"/log-level?level={level}")

    async def ask_console(self, method: str, path: str) -> Sequence[Json]:
        found = await self._ask(method, f"{_CONSOLE}{path}")
        return [each for each in found.values() if each is not None]


@asynccontextmanager
async def worker_endpoint(worker: Worker, app: App) -> AsyncIterator[None]:
    """Serve requests of the other workers and of the supervisor on the worker's Unix socket."""
    runner = web.ServerRunner(web.Server(partial(_answer, app), access_log=None), shutdown_timeout=1)
    await runner.setup()
    path = socket_path(Path(worker.directory), worker.number)
    with suppress(FileNotFoundError):
        path.unlink()  # left by a killed worker
    try:
        await web.UnixSite(runner, str(path)).start()
        yield
    finally:
        await runner.cleanup()
        path.unlink(missing_ok=True)
        if os.getppid() != worker.supervisor:  # a killed supervisor leaves the directory
            with suppress(OSError):
                path.parent.rmdir()


async def _answer(app: App, request: web.BaseRequest) -> web.Response:
    method, path = request.method, request.path
    found: Json = None
    match method, path:
        case "GET", "/status":
            found = _with_pid(app.status())
        case "GET", "/ready":
            found = app.core.health.readiness()
        case "GET", "/metrics":
            found = (await app.metrics.exposition(_PLAIN))[0].decode()
        case "POST", "/reload":
            found = await app.reloads.reload(trigger="signal")
        case "POST", "/log-level":
            app.logs.set_level(request.query["level"])
        case _ if app.console_worker is not None:
            try:
                found = await app.console_worker.answer(method, path.removeprefix(_CONSOLE), request.query)
            except ValueError as error:
                return web.Response(status=400, text=str(error))
    return web.Response(body=orjson.dumps(found), content_type="application/json")


def _with_pid(status: JsonObject) -> JsonObject:
    return {"pid": os.getpid(), **status}


async def ask_workers(
    directory: Path, method: str, path: str, *, without: int | None = None, seconds: float = _RESPONSE_SECONDS
) -> dict[int, Json]:
    """Send a request to all workers except `without`. Return responses by worker number, with None for failures."""
    names = await asyncio.to_thread(lambda: [each.stem for each in directory.glob(f"*{SOCKET_SUFFIX}")])
    numbers = sorted(int(name) for name in names if name.isdigit() and int(name) != without)
    responses = await asyncio.gather(*(_ask(socket_path(directory, each), method, path, seconds) for each in numbers))
    return dict(zip(numbers, responses, strict=True))


async def _ask(socket: Path, method: str, path: str, seconds: float) -> Json:
    # Do not reuse connections, because the worker could have been replaced.
    connector = aiohttp.UnixConnector(path=str(socket))
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.request(method, f"http://worker{path}") as response,
        ):
            return orjson.loads(await response.read()) if response.status < 300 else None
    except (OSError, aiohttp.ClientError, TimeoutError, ValueError):
        return None
