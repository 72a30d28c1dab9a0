"""Writes lines in a thread of its own, so that a slow disk or reader never makes the event loop wait.

Lines wait in a queue that is bounded in bytes. A line that does not fit is dropped and counted, and a line that says
how many were dropped is written as soon as the queue is empty. Used by the logs and by the audit log; standard output
of the protocol is written otherwise (see `transports.stdio.line_writer`).
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol


class Sink(Protocol):
    """The destination of lines. Called in the writer's thread alone."""

    def write(self, lines: Iterator[bytes]) -> None:
        """Write all lines. One counts as written when the next is asked for.

        Raises:
            OSError: the line asked for last could not be written; it is tried again.
        """

    def close(self) -> None: ...


class BackgroundWriter:
    """The queue and its thread. Takes lines between `start` and `stop`."""

    def __init__(  # noqa: PLR0913 - the sink, the bound, and what happens at either
        self,
        sink: Sink,
        *,
        name: str,
        max_bytes: int,
        on_drop: Callable[[int], bytes],
        retry_seconds: float = 1.0,
        gather_seconds: float = 0.0,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Start nothing yet.

        Args:
            sink: writes the lines.
            name: of the thread.
            max_bytes: the bound of the queue; a line that is larger by itself is taken while the queue is empty.
            on_drop: makes the line that says how many were dropped.
            retry_seconds: pause after the sink has failed.
            gather_seconds: pause in which a first line waits for others: to wake the thread takes longer than to write.
            on_end: called in the thread when it ends, with the lines that could not be written still in the queue.
        """
        self.written = 0
        """Lines, those that say how many were dropped too."""
        self.dropped = 0
        """Lines that the queue had no room for."""
        self.unreported = 0
        """Dropped lines that no line tells of yet."""
        self._sink: Final = sink
        self._max_bytes: Final = max_bytes
        self._on_drop: Final = on_drop
        self._retry_seconds: Final = retry_seconds
        self._gather_seconds: Final = gather_seconds
        self._on_end: Final = on_end
        self._queue: Final[deque[bytes]] = deque()
        self._queued_bytes = 0
        self._wake: Final = threading.Condition()
        self._is_open = False
        # A daemon thread: a disk that hangs must not hold up the process's exit.
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._is_open = True
        self._thread.start()

    def end(self) -> None:
        """Take no more lines. The thread ends by itself once the queued ones are written, or the sink fails."""
        with self._wake:
            self._is_open = False
            self._wake.notify()

    def stop(self, seconds: float) -> None:
        """Take no more lines, and wait that long for the queued ones to be written."""
        self.end()
        self._thread.join(seconds)

    @property
    def has_ended(self) -> bool:
        return not self._is_open and not self._thread.is_alive()

    def put(self, line: bytes) -> bool:
        """Queue a line; False if it was dropped. Never waits."""
        with self._wake:
            if not self._is_open:
                return False
            if self._queue and self._queued_bytes + len(line) > self._max_bytes:
                self.dropped += 1
                self.unreported += 1
                return False
            # While lines wait, the thread is awake, or waits to try again. To wake it costs more than the line.
            if not self._queue:
                self._wake.notify()
            self._queue.append(line)
            self._queued_bytes += len(line)
        return True

    def retry(self) -> None:
        """Try again now what could not be written."""
        with self._wake:
            self._wake.notify()

    @property
    def waiting(self) -> int:
        """Lines in the queue."""
        return len(self._queue)

    def _run(self) -> None:
        while self._has_work():
            try:
                self._sink.write(self._lines())
            except OSError:
                with self._wake:
                    if not self._is_open:
                        break  # the process ends, and does not wait for the disk
                    # `retry` and `end` wake it earlier.
                    self._wake.wait(self._retry_seconds)
        self._sink.close()
        self._on_end()

    def _has_work(self) -> bool:
        """Wait for lines; False once there are none and none will come."""
        with self._wake:
            self._wake.wait_for(lambda: self._queue or self.unreported or not self._is_open)
            if self._gather_seconds and self._is_open:
                self._wake.wait_for(lambda: not self._is_open, self._gather_seconds)
            return bool(self._queue or self.unreported)

    def _lines(self) -> Iterator[bytes]:
        while self._queue:
            line = self._queue[0]  # only this thread takes lines out, and not before they are written
            yield line
            with self._wake:
                self._queue.popleft()
                self._queued_bytes -= len(line)
                self.written += 1
        if count := self.unreported:
            yield self._on_drop(count)
            with self._wake:
                # Not 0: more may have been dropped while this line was written.
                self.unreported -= count
                self.written += 1


def write_all(descriptor: int, data: bytes) -> bool:
    """Write everything, blocking; False if the reader is gone."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # a process that shares the descriptor made it non-blocking
            select.select([], [descriptor], [])
        except OSError:
            return False
    return True
