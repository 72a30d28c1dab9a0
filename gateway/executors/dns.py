"""Looks host names up without holding anything up: neither the event loop nor the process's exit.

Why not aiohttp's resolver: it asks in the loop's executor, or in libuv's threads, and both are joined at exit. One name
server that does not answer would keep the process for half a minute.
"""

import asyncio
import socket
from contextlib import suppress
from threading import Thread
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

MAX_LOOKUPS: Final = 16
"""Threads that may be asking at once; a further lookup waits for one of them."""


class DaemonResolver(AbstractResolver):
    """Asks the system's resolver in daemon threads, one a lookup."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MAX_LOOKUPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[ResolveResult]] = loop.create_future()
        try:
            Thread(target=self._ask, args=(loop, answer, host, port, family), name="dns", daemon=True).start()
        except RuntimeError as error:
            self._free.release()
            raise OSError("no thread for a lookup") from error
        return await answer

    async def close(self) -> None:
        """Leave lookups that hang to themselves: nobody waits for their answer."""

    def _ask(
        self,
        loop: asyncio.AbstractEventLoop,
        answer: "asyncio.Future[list[ResolveResult]]",
        host: str,
        port: int,
        family: socket.AddressFamily,
    ) -> None:
        found: list[ResolveResult] | OSError
        try:
            infos = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
            found = [_result(host, port, str(info[4][0]), family=info[0]) for info in infos]
        except OSError as error:
            found = error
        except UnicodeError:  # a label that is empty or over 63 characters
            found = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._settle, answer, found)

    def _settle(self, answer: "asyncio.Future[list[ResolveResult]]", found: list[ResolveResult] | OSError) -> None:
        self._free.release()
        if answer.done():
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)


def _result(name: str, port: int, address: str, *, family: int) -> ResolveResult:
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=name, host=address, port=port, family=family, proto=0, flags=flags)
