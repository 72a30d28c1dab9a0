"""The socket in front of the HTTP application: opens, says where it is, stops accepting, closes."""

import asyncio
import errno
import logging
import socket
from typing import Final

import structlog
from aiohttp import web

from gateway.config.address import Address

log: Final = structlog.get_logger()

_FAREWELL_SECONDS: Final = 2.0
"""How long connections may take to end once what they served was cancelled."""
_QUIET: Final = logging.getLogger("gateway.http")
"""aiohttp logs each malformed request with a traceback; our own mistakes are logged before they get there."""


class ListenError(Exception):
    """The address cannot be listened on; the text says why."""


class HttpListener:
    """One address."""

    def __init__(self, application: web.Application, *, address: Address) -> None:
        _QUIET.setLevel(logging.CRITICAL)
        self._runner: Final = web.AppRunner(
            application,
            access_log=None,
            logger=_QUIET,
            handler_cancellation=True,  # 2026-07-28: closing the connection cancels
            auto_decompress=False,
            shutdown_timeout=_FAREWELL_SECONDS,
        )
        self._wanted: Final = address
        self._site: web.TCPSite | None = None

    @property
    def address(self) -> Address:
        """Where it listens, with the port that it got."""
        return self._wanted if self._site is None else Address(self._wanted.host, self._site.port)

    async def start(self) -> None:
        """Begin to accept.

        Raises:
            ListenError: the address is taken, or is not this machine's.
        """
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._wanted.host, self._wanted.port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise ListenError(_reason(error, self._wanted)) from error
        self._site = site

    async def stop_accepting(self) -> None:
        if self._site is not None and self._site in self._runner.sites:
            await self._site.stop()

    async def close(self) -> None:
        """Close what is left, whether or not it ends by itself."""
        await self.stop_accepting()
        try:
            async with asyncio.timeout(2 * _FAREWELL_SECONDS + 1):
                await self._runner.cleanup()
        except TimeoutError:
            log.warning("connections did not close")


def _reason(error: OSError, address: Address) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name {address.host!r} cannot be resolved: {error.strerror}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{address} is in use already; port 0 takes a free one"
        case errno.EADDRNOTAVAIL:
            return f"{address.host} is not an address of this machine"
        case errno.EACCES:
            return f"ports below 1024 need a privilege that this process lacks: {address}"
        case _:
            return f"cannot listen on {address}: {error.strerror or error}"
