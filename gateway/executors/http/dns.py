"""Looks host names up without holding anything up: neither the event loop nor the process's exit.

Why not aiohttp's resolver: it asks in the loop's executor, or in libuv's threads, and both are joined at exit. One name
server that does not answer would keep the process for half a minute.
"""

import asyncio
import socket
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.executors.threads import Threads

_LONGEST_LOOKUP: Final = 60.0
"""Seconds. The calls that wait for it have deadlines of their own."""


class DaemonResolver(AbstractResolver):
    """Asks the system's resolver in our own daemon threads."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        deadline = asyncio.get_running_loop().time() + _LONGEST_LOOKUP
        return await self._threads.run(_look_up, host, port, family, deadline=deadline)

    async def close(self) -> None:
        """Do nothing: the threads belong to whoever handed them in."""


def _look_up(host: str, port: int, family: int) -> list[ResolveResult]:
    try:
        infos = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is empty or over 63 characters
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from error
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return [
        ResolveResult(hostname=host, host=str(address[0]), port=port, family=found, proto=protocol, flags=flags)
        for found, _, protocol, _, address in infos
    ]
