"""Sends a child's output lines as progress messages, at most 20 per second.

If lines arrive faster, old lines are dropped, so that the child never waits for a slow client.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Final, Self

from gateway.executors.output.sanitizer import Sanitizer
from gateway.plugin import Context

PER_SECOND: Final = 20
MAX_MESSAGE_LENGTH: Final = 1000
"""The maximum length of a progress message in characters."""
_MAX_LINE_LENGTH: Final = 64 * 1024
"""The maximum length of a line in bytes. Longer lines are truncated."""
_KEPT_LINES: Final = 20
_FLUSH_SECONDS: Final = 1.0
"""The time limit for sending the last messages after the child has ended."""


class ProgressLines:
    """Sends the lines that are passed to `feed`. Use as an async context manager, and call `feed` for each chunk."""

    def __init__(self, context: Context, *, sanitizer: Sanitizer) -> None:
        self._context = context
        self._sanitizer = sanitizer
        self._rest = b""
        self._count = 0
        self._waiting: deque[tuple[int, str]] = deque(maxlen=_KEPT_LINES)
        self._changed = asyncio.Event()
        self._is_over = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._send(), name="progress lines")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._take(self._rest)
        self._is_over = True
        self._changed.set()
        try:
            if kind is None:
                await asyncio.wait([self._task], timeout=_FLUSH_SECONDS)
        finally:
            self._task.cancel()
            await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    def feed(self, chunk: bytes) -> None:
        # Progress bars end their lines with a carriage return.
        *lines, rest = (self._rest + chunk).replace(b"\r", b"\n").split(b"\n")
        self._rest = rest[:_MAX_LINE_LENGTH]
        written = [line for line in lines if line.strip()]
        self._count += max(0, len(written) - _KEPT_LINES)
        for line in written[-_KEPT_LINES:]:
            self._take(line)

    def _take(self, line: bytes) -> None:
        # A truncated line can end with a part of a secret.
        clean = self._sanitizer.text if len(line) < _MAX_LINE_LENGTH else self._sanitizer.head
        text = clean(line[:_MAX_LINE_LENGTH].decode(errors="replace")).strip()
        if text:
            self._count += 1
            self._waiting.append((self._count, text[:MAX_MESSAGE_LENGTH]))
            self._changed.set()

    async def _send(self) -> None:
        while self._waiting or not self._is_over:
            if not self._waiting:
                self._changed.clear()
                await self._changed.wait()
                continue
            number, message = self._waiting.popleft()
            # MCP 2025-11-25 basic/utilities/progress: the value must increase.
            await self._context.progress(number, None, message)
            if not self._is_over:
                await asyncio.sleep(1 / PER_SECOND)
