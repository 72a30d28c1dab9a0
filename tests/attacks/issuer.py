"""An authorization server next to the attacked daemon, in a separate thread."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.attacks.client import TIMEOUT_SECONDS
from tests.authorization_server import AuthorizationServer, authorization_server


@contextmanager
def issuing(algorithm: str = "RS256") -> Iterator[AuthorizationServer]:
    """Run an authorization server. Tokens can be signed from any thread."""
    ready, over = threading.Event(), threading.Event()
    servers: list[AuthorizationServer] = []

    async def serve() -> None:
        async with authorization_server(algorithm) as server:
            servers.append(server)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(TIMEOUT_SECONDS)
    try:
        yield servers[0]
    finally:
        over.set()
        thread.join(TIMEOUT_SECONDS)
