"""A connection that answers plain POSTs itself: a task for each, past aiohttp's loop over the requests of a connection.

Why: for each request aiohttp wakes the connection's task, which makes one for the handler and waits for that: three
turns of the event loop, where one is enough. They are an eighth of what a small call costs.

A POST is plain if its target has a handler of its own, its body came whole and with it, and nothing else is on its way
on the connection. All else is aiohttp's: other methods and targets, bodies in chunks or in parts, pipelined requests,
upgrades, HTTP/1.0, connections that are to close, and heads that are none. Reading, limits and timeouts are the same
for all of them: what is parsed here was parsed by aiohttp, and passed `HttpConnection`.

This stands on private parts of aiohttp, which `tests/transports/test_direct_connection.py` looks at by name and by
effect: its loop sleeps until the future in `_waiter` is done, and takes the next of `_messages` then; while there is no
`_waiter` it is at work, so that nobody wakes it and an idle connection is not closed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.http import RawRequestMessage, StreamWriter

from gateway.transports.listener.http_connection import ConnectionLimits, HttpConnection

Handler = Callable[[Any], Awaitable[web.StreamResponse]]
"""Answers a request."""


class DirectConnection(HttpConnection):
    """An `HttpConnection` that hands plain POSTs straight to the handlers of their targets."""

    __slots__ = ("_answering", "_direct")

    def __init__(
        self,
        server: web.Server,
        connection_limits: ConnectionLimits,
        *,
        direct: Mapping[str, Handler],
        counted_for: str | None = None,
    ) -> None:
        """Do nothing yet; `direct` are handlers by target."""
        super().__init__(server, connection_limits, counted_for=counted_for)
        self._direct: Final = direct
        self._answering: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        idle = self._waiter
        if idle is None or idle.done():  # a request is being served, or about to be
            super().data_received(data)
            return
        # Out of sight while aiohttp parses, which would wake its loop for the message.
        self._waiter = None
        super().data_received(data)
        self._waiter = idle
        if not self._messages:
            return
        plain = self._plain_post()
        if plain is None:
            idle.set_result(None)
        else:
            self._waiter = None
            self._answering = self._loop.create_task(self._answer(*plain, idle=idle))

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._answering is not None:
            self._answering.cancel()  # 2026-07-28: closing the connection cancels

    def _plain_post(self) -> tuple[Handler, RawRequestMessage, StreamReader] | None:
        """Take the only message off the queue, if it is a plain POST, with its handler and its body."""
        message, body = self._messages[0]
        if (
            len(self._messages) > 1
            or not isinstance(message, RawRequestMessage)
            or message.method != "POST"
            or not body.is_eof()
            or message.chunked
            or message.upgrade
            or message.should_close
            or message.version != HttpVersion11
            or self._close
        ):
            return None
        handler = self._direct.get(message.path)
        if handler is None or self._parser is None:
            return None
        self._messages.popleft()
        self._parser.message_consumed()
        return handler, message, body

    async def _answer(
        self, handler: Handler, message: RawRequestMessage, body: StreamReader, *, idle: asyncio.Future[None]
    ) -> None:
        """Answer a request as aiohttp's `start` would; `idle` is what that waits for."""
        stays_open = False
        try:
            make, task = self._request_factory, self._task_handler
            assert make is not None and task is not None  # noqa: S101, PT018 - still connected
            request = make(message, body, self, StreamWriter(self, self._loop), task)
            response, is_gone = await self._handle_request(request, None, handler)
            stays_open = not is_gone and bool(response.keep_alive)
        except ConnectionError:
            pass  # the client went away
        except Exception:  # noqa: BLE001 - Boundary: as in aiohttp's `start`, the connection is lost with the answer
            self.log_exception("Unhandled exception")
        finally:
            self._answering = None
            if stays_open and not self._close and not self._force_close:
                self._await_next(idle)
            else:
                # aiohttp's loop sleeps until this future is done: cancelled, it ends.
                idle.cancel()
                self.force_close()

    def _await_next(self, idle: asyncio.Future[None]) -> None:
        """Give the connection back to aiohttp's loop: to sleep, or to serve what came meanwhile."""
        self._waiter = idle
        if self._messages:
            idle.set_result(None)
        self._next_keepalive_close_time = close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(close_time, self._process_keepalive)
