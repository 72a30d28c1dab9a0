"""Writes lines in a thread, so that a slow disk or reader never blocks the event loop.

The queue is bounded in bytes. Lines that do not fit are dropped. Once the queue is empty, an extra line reports the
number of dropped lines. The logs and the audit log use this class.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final


class BackgroundWriter:
    """Queues lines between `start` and `stop`, and writes them in a thread."""

    def __init__(  # noqa: PLR0913 - the settings of the queue
        self,
        write_lines: Callable[[Iterator[bytes]], None],
        *,
        name: str,
        max_bytes: int,
        on_drop: Callable[[int], bytes],
        retry_seconds: float = 1.0,
        gather_seconds: float = 0.0,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the writer.

        Args:
            write_lines: Called in the thread with an iterator over the queued lines. A line leaves the queue when the
                next line is requested. After an OSError, the current line is written again.
            name: The name of the thread.
            max_bytes: The limit of the queue. A larger line is accepted while the queue is empty.
            on_drop: Creates the line that reports the number of dropped lines.
            retry_seconds: The delay after a failed write.
            gather_seconds: The time to wait for more lines, because waking the thread takes longer than writing a line.
            on_end: Called in the thread just before it ends. Unwritten lines are still in the queue.
        """
        self.written = 0
        self.dropped = 0
        self.unreported = 0
        self._write_lines: Final = write_lines
        self._max_bytes: Final = max_bytes
        self._on_drop: Final = on_drop
        self._retry_seconds: Final = retry_seconds
        self._gather_seconds: Final = gather_seconds
        self._on_end: Final = on_end
        self._queue: Final[deque[bytes]] = deque()
        self._queued_bytes = 0
        self._wake: Final = threading.Condition()
        self._is_open = False
        # A daemon thread, because a hanging disk must not delay the exit.
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._is_open = True
        self._thread.start()

    def end(self) -> None:
        """Stop accepting lines. The thread ends when all queued lines are written or a write fails."""
        with self._wake:
            self._is_open = False
            self._wake.notify()

    def stop(self, seconds: float) -> None:
        """Stop accepting lines, and wait up to `seconds` for the queue to be written."""
        self.end()
        self._thread.join(seconds)

    @property
    def has_ended(self) -> bool:
        return not self._is_open and not self._thread.is_alive()

    def put(self, line: bytes) -> bool:
        """Queue a line without waiting. Return False if the line was dropped."""
        with self._wake:
            if not self._is_open:
                return False
            if self._queue and self._queued_bytes + len(line) > self._max_bytes:
                self.dropped += 1
                self.unreported += 1
                return False
            # The thread is awake while lines are queued.
            if not self._queue:
                self._wake.notify()
            self._queue.append(line)
            self._queued_bytes += len(line)
        return True

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def _run(self) -> None:
        while self._has_work():
            try:
                self._write_lines(self._lines())
            except OSError:
                with self._wake:
                    if not self._is_open:
                        break  # The process ends.
                    # `end` wakes the thread earlier.
                    self._wake.wait(self._retry_seconds)
        self._on_end()

    def _has_work(self) -> bool:
        """Wait for lines. Return False if the writer was closed and no lines are left."""
        with self._wake:
            self._wake.wait_for(lambda: self._queue or self.unreported or not self._is_open)
            if self._gather_seconds and self._is_open:
                self._wake.wait_for(lambda: not self._is_open, self._gather_seconds)
            return bool(self._queue or self.unreported)

    def _lines(self) -> Iterator[bytes]:
        while self._queue:
            line = self._queue[0]  # Only this thread removes lines, and only after writing them.
            yield line
            with self._wake:
                self._queue.popleft()
                self._queued_bytes -= len(line)
                self.written += 1
        if count := self.unreported:
            yield self._on_drop(count)
            with self._wake:
                # Do not reset the number to 0, because more lines could have been dropped since.
                self.unreported -= count
                self.written += 1


def write_all(descriptor: int, data: bytes) -> bool:
    """Write all data, even if this blocks. Return False if a write fails, for example without a reader."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # Another process made the descriptor non-blocking.
            select.select([], [descriptor], [])
        except OSError:
            return False
    return True
