"""The other workers of this daemon, over Unix sockets in a directory of their supervisor's that nobody else may enter.

Each worker answers for itself alone there; whichever is asked on the admin API collects from all and adds up.
"""

import asyncio
from pathlib import Path
from typing import Final

import aiohttp
import orjson

from gateway.app.workers.worker import SOCKET_SUFFIX, socket_path
from gateway.json_types import Json

ANSWER_SECONDS: Final = 5.0
RELOAD_SECONDS: Final = 120.0


class Siblings:
    """The workers that have a socket in a directory, but for one of a number."""

    def __init__(self, directory: Path, *, without: int | None = None) -> None:
        """Ask nobody yet."""
        self._directory: Final = directory
        self._without: Final = without

    async def ask(self, method: str, path: str, *, seconds: float = ANSWER_SECONDS) -> dict[int, Json]:
        """The answers to a request, by the worker's number; None where there was none."""
        numbers = [number for number in await asyncio.to_thread(self._numbers) if number != self._without]
        answers = await asyncio.gather(*(self._ask_one(number, method, path, seconds) for number in numbers))
        return dict(zip(numbers, answers, strict=True))

    def _numbers(self) -> list[int]:
        names = (each.stem for each in self._directory.glob(f"*{SOCKET_SUFFIX}"))
        return sorted(int(name) for name in names if name.isdigit())

    async def _ask_one(self, number: int, method: str, path: str, seconds: float) -> Json:
        # No connection is kept: the worker behind it may have been replaced since.
        connector = aiohttp.UnixConnector(path=str(socket_path(self._directory, number)))
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.request(method, f"http://worker{path}") as got,
            ):
                return orjson.loads(await got.read()) if got.status < 300 else None
        # A worker that is being replaced, or hangs, is missing from the answer, and costs no more than the time.
        except (OSError, aiohttp.ClientError, TimeoutError, ValueError):
            return None
