"""Opens connections whose server cannot keep the daemon busy with answers that are none.

Threat answered here: a server may send any number of interim responses (1xx) before its answer, and aiohttp takes them
all: parsed in bulk, they hold the event loop for seconds, and a hundred megabytes. Everything else that is sent is
bounded by aiohttp (lines, headers, chunks) or by the sender (body, time).

Why aiohttp's private `_factory`: it is the one place that says what reads a connection. A test fails if it is ignored.
"""

from functools import partial
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import StreamReader

MAX_INTERIM: Final = 20
"""Before one connection's next answer. RFC 8297 expects a few."""


class BoundedConnector(aiohttp.TCPConnector):
    """A `TCPConnector` that hangs up on a server with too many interim responses."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        handler: type[ResponseHandler] = _BoundedHandler
        self._factory = partial(handler, loop=self._loop)


class _BoundedHandler(ResponseHandler):
    _interim = 0

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        self._interim = self._interim + 1 if 100 <= data[0].code < 200 else 0
        if self._interim <= MAX_INTERIM:
            super().feed_data(data, size)
        elif self.transport is not None and not self.transport.is_closing():
            self.set_exception(HttpProcessingError(message="too many interim responses"))
            self.transport.abort()
