"""Accepts TLS connections: counts each from its beginning, and bounds the time of its handshake.

Why not leave it to the server's own TLS: that reports a connection once its handshake is done. Until then it would not
be counted, and a client that stays silent could hold as many as there are descriptors.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from gateway.transports.listener.http_connection import ConnectionLimits, HttpConnection
from gateway.transports.listener.server_tls import ServerTls


class TlsAcceptor(asyncio.Protocol):
    """Takes a connection as it is accepted, and opens it anew with TLS once it is counted. Nothing is read here."""

    def __init__(
        self,
        tls: ServerTls,
        connection_limits: ConnectionLimits,
        *,
        connect: Callable[[str], HttpConnection],
        at_work: set["asyncio.Task[None]"],
    ) -> None:
        """Do nothing yet; `connect` makes the connection of a caller who is counted already."""
        self._tls: Final = tls
        self._connection_limits: Final = connection_limits
        self._connect: Final = connect
        self._at_work: Final = at_work

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        caller = self._connection_limits.caller_behind(transport.get_extra_info("peername"))
        # Who is refused cannot be told why: there is no TLS yet.
        if self._connection_limits.quota.refusal_of(caller) is None:
            self._begin(transport.get_extra_info("socket").fileno(), caller)
        # This closes one descriptor; the duplicate, where there is one, keeps the connection.
        cast("asyncio.Transport", transport).abort()

    def _begin(self, descriptor: int, caller: str) -> None:
        try:
            accepted = socket.socket(fileno=os.dup(descriptor))
        except OSError:  # no descriptor is left
            return
        # `connect_accepted_socket` takes none that blocks.
        accepted.settimeout(0)
        self._connection_limits.quota.acquire(caller)
        task = asyncio.get_running_loop().create_task(self._shake_hands(accepted, caller), name="TLS handshake")
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def _shake_hands(self, accepted: socket.socket, caller: str) -> None:
        connection = self._connect(caller)
        try:
            with suppress(OSError):  # TLS errors, lost connections and the deadline: all are the client's affair
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=self._tls.context,
                    ssl_handshake_timeout=self._connection_limits.handshake_seconds,
                )
        finally:
            if not connection.has_begun:  # which gives it back itself
                self._connection_limits.quota.release(caller)
