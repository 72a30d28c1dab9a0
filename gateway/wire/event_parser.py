"""Parses event streams (WHATWG HTML, "Server-sent events") from chunks of bytes. No I/O."""

import codecs
from collections.abc import Iterator
from typing import Final

import msgspec

MAX_EVENT: Final = 32 * 2**20
_MAX_DIGITS: Final = 10
_LONGEST_RETRY: Final = 10**_MAX_DIGITS
"""Replaces larger `retry` values (in milliseconds), because Python cannot parse more than 4300 digits."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A server-sent event. A client resumes the stream after this event by sending `id`."""

    data: bytes
    name: str = "message"
    id: str | None = None
    retry_ms: int | None = None


class EventTooLargeError(ValueError):
    """An event has more than `MAX_EVENT` bytes."""


class EventParser:
    """Splits a stream into events. Events without data are only yielded if they have an id or a `retry`."""

    def __init__(self, *, max_event: float = MAX_EVENT) -> None:
        """`max_event` is the maximum size of an event in bytes."""
        self._max_event: Final = max_event
        self._buffer = bytearray()
        self._searched = 0
        """The number of bytes already searched for a line end."""
        self._data: list[bytes] = []
        self._size = 0
        self._name = ""
        self._id: str | None = None
        self._retry: int | None = None
        self._after_cr = False
        self._is_at_start = True

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that this chunk completes.

        Raises:
            EventTooLargeError: An event is too large.
        """
        self._buffer += chunk
        if self._is_at_start and not _is_cut_mark(self._buffer):
            # WHATWG HTML, "Parsing an event stream": ignore one byte order mark at the start.
            self._buffer, self._searched = self._buffer.removeprefix(codecs.BOM_UTF8), 0
            self._is_at_start = False
        while (line := self._next_line()) is not None:
            if line:
                self._field(line)
            elif (event := self._finished()) is not None:
                yield event
        if len(self._buffer) + self._size > self._max_event:
            raise EventTooLargeError(f"an event of more than {self._max_event // 2**20} MiB")

    @property
    def unfinished(self) -> bytes:
        """The data of the event that no blank line has ended yet, although WHATWG HTML discards this event."""
        name, _, value = bytes(self._buffer).partition(b":")
        return b"\n".join([*self._data, *([value.removeprefix(b" ")] if name == b"data" else [])])

    def _next_line(self) -> bytes | None:
        """Return the next complete line. Lines end with CR, LF or CRLF."""
        # A CRLF can be split between two chunks.
        if self._after_cr and self._buffer:
            self._after_cr = False
            if self._buffer[0] == _LF:
                del self._buffer[0]
        feed = self._buffer.find(b"\n", self._searched)
        # Search for a CR only up to the LF, because most streams contain no CR.
        carriage = self._buffer.find(b"\r", self._searched, None if feed < 0 else feed)
        end = feed if carriage < 0 else carriage
        if end < 0:
            self._searched = len(self._buffer)
            return None
        self._after_cr, self._searched = end == carriage, 0
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        # WHATWG HTML, "Interpreting an event stream": remove one space after the colon. Ignore ids with NUL and invalid
        # `retry`.
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
                self._size += len(value) + 1
            case b"event":
                self._name = value.decode(errors="replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode(errors="replace")
            case b"retry" if value.isdigit():
                self._retry = int(value) if len(value) < _MAX_DIGITS else _LONGEST_RETRY

    def _finished(self) -> Event | None:
        data, name, id_, retry = b"\n".join(self._data), self._name or "message", self._id, self._retry
        is_empty = not self._data and id_ is None and retry is None
        self._data, self._size, self._name, self._id, self._retry = [], 0, "", None, None
        return None if is_empty else Event(data=data, name=name, id=id_, retry_ms=retry)


def _is_cut_mark(beginning: bytearray) -> bool:
    """Return whether the stream so far is only an incomplete byte order mark."""
    return len(beginning) < len(codecs.BOM_UTF8) and codecs.BOM_UTF8.startswith(bytes(beginning))


_LF: Final = 0x0A
