"""An aiohttp application on loopback, used for backends, collectors and issuers in tests."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def listening(
    application: web.Application, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve an application, and yield its port. Handlers are cancelled when their client disconnects."""
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        listening_port: int = runner.addresses[0][1]
        yield listening_port
    finally:
        await runner.cleanup()
