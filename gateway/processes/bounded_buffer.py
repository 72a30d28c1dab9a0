"""A buffer that keeps the head and the tail of a stream, and drops the middle if it is too long."""


class BoundedBuffer:
    """Takes any number of bytes, and holds no more than about one and a half times `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._taken = 0

    def feed(self, chunk: bytes) -> None:
        self._taken += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        # At twice its limit and not at each chunk: a flood of short writes pays for the trimming only now and then.
        if len(self._tail) > 2 * self._tail_limit:
            self._trim()

    @property
    def is_empty(self) -> bool:
        return not self._taken

    @property
    def data(self) -> bytes:
        self._trim()
        return bytes(self._head + self._tail)

    @property
    def parts(self) -> tuple[bytes, bytes]:
        """The head and the tail."""
        self._trim()
        return bytes(self._head), bytes(self._tail)

    @property
    def omitted(self) -> int:
        """The number of bytes that are missing between the head and the tail."""
        return max(0, self._taken - self._head_limit - self._tail_limit)

    def is_whole_within(self, size: int) -> bool:
        """Whether no more than that was taken, and nothing of it is missing."""
        return self._taken <= size and not self.omitted

    def end(self, size: int) -> bytes:
        """Return no more than the last `size` bytes taken."""
        self._trim()
        # Where the middle is missing, head and tail joined would read like one text that was never written.
        if len(self._tail) >= size or self.omitted:
            return bytes(self._tail[-size:])
        return bytes((self._head + self._tail)[-size:])

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_limit)]
