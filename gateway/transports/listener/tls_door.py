"""A connection before both sides agree on TLS: counted from its beginning, and given little time.

Why not leave it to the server's own TLS: that tells of a connection once it is agreed upon. Until then it would be
nobody's, and whoever says nothing could hold as many as there are descriptors.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from gateway.transports.listener.http_connection import HttpConnection, Threshold
from gateway.transports.listener.server_tls import ServerTls


class TlsDoor(asyncio.Protocol):
    """Takes a connection as it is accepted, and opens it anew with TLS once it is counted. Nothing is read here."""

    def __init__(
        self,
        tls: ServerTls,
        threshold: Threshold,
        *,
        connect: Callable[[str], HttpConnection],
        at_work: set["asyncio.Task[None]"],
    ) -> None:
        """Do nothing yet; `connect` makes the connection of a caller who is counted already."""
        self._tls: Final = tls
        self._threshold: Final = threshold
        self._connect: Final = connect
        self._at_work: Final = at_work

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        caller = self._threshold.caller_behind(transport.get_extra_info("peername"))
        if self._threshold.ration.refusal_of(caller) is None:  # otherwise nobody is there yet who could be told why
            self._begin(transport.get_extra_info("socket").fileno(), caller)
        cast("asyncio.Transport", transport).abort()

    def _begin(self, descriptor: int, caller: str) -> None:
        try:
            accepted = socket.socket(fileno=os.dup(descriptor))
        except OSError:  # no descriptor is left
            return
        accepted.settimeout(0)
        self._threshold.ration.take(caller)
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
                    ssl_handshake_timeout=self._threshold.handshake_seconds,
                )
        finally:
            if not connection.has_begun:  # which gives it back itself
                self._threshold.ration.give_back(caller)
