"""The client side of the stdio transport, which also starts and stops the server as a child process.

Threats:

- The process floods standard output: the length of lines, and the non-MCP bytes between two messages, are limited.
- The process does not read its standard input: unread input is limited.
- The process does not exit when its standard input is closed: the process tree is killed.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog
from msgspec.structs import replace

from gateway.access.identity import Subject
from gateway.errors import ExecutionError
from gateway.json_types import JsonObject
from gateway.limits.concurrency import ConcurrencyPermit
from gateway.processes.pipes import BoundedBuffer, InputBuffer
from gateway.processes.process_tree import Command
from gateway.processes.processes import Processes
from gateway.upstreams.client.link import (
    INTERNAL_ERROR,
    Inbox,
    Incoming,
    Pending,
    Unreadable,
    messages_in,
    unreadable,
)
from gateway.upstreams.failures import ConnectionLostError, UnreachableError
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Response

log: Final = structlog.get_logger(__name__)

MAX_LINE: Final = 32 * 2**20
_KILL_FACTOR: Final = 8
"""The child process is killed if a line is longer than this multiple of `MAX_LINE`."""
_TAIL: Final = 4096
"""How many bytes are kept from the end of a line that is too long, because some servers write the id last."""
_EXCERPT_BYTES: Final = 200
MAX_NON_MCP_BYTES: Final = 2**20
"""Maximum number of bytes of non-MCP output, such as log lines, between two messages."""
MAX_UNREAD: Final = 32 * 2**20
CLOSE_SECONDS: Final = 2.0
_JOIN_SECONDS: Final = 1.0
"""The maximum time to wait for the next line of a message that spans several lines."""
_MAX_SINGLE_LINES: Final = 1000
"""If lines form no message, at most this number of lines are parsed one by one. More would block the event loop."""
_FIRST_LINE: Final = re.compile(rb'\s*[\[{]\s*(?:$|["\[{])')
_MESSAGE_LINE: Final = re.compile(rb'[^{]*\{.*"jsonrpc"\s*:')
_STDERR_BYTES: Final = 4096
_TAIL_LINES: Final = 200
_TAIL_LINE_BYTES: Final = 2000
_FOREVER: Final = 1e8


class StdioLink:
    transport = "stdio"

    def __init__(
        self, command: Callable[[InputBuffer], Command], *, processes: Processes, stderr_tail: "LineTail"
    ) -> None:
        """Create a link without starting the process.

        `command` returns the command to start, which reads its standard input from the given buffer.
        """
        self._command: Final = command
        self._processes: Final = processes
        self._stderr_tail: Final = stderr_tail
        self._input: Final = InputBuffer(limit=MAX_UNREAD)
        self._pending: Final = Pending()
        self._line = bytearray()
        self._skipped = 0
        self._tail = b""
        self._lines: list[bytes] = []
        """The lines of an incomplete JSON text, such as a pretty-printed message."""
        self._size = self._open = 0
        """The size of the lines in bytes, and the number of brackets that are still open at the ends of lines."""
        self._joining: asyncio.TimerHandle | None = None
        self._non_mcp_bytes = 0
        self._has_spoken = False
        self.non_mcp_output = ""
        self._stderr: Final = BoundedBuffer(_STDERR_BYTES)
        self._running: asyncio.Task[None]
        self._inbox: Inbox
        self.closed: asyncio.Future[str]

    async def open(self, inbox: Inbox, *, subject: Subject | None) -> None:
        del subject  # child processes need no credentials
        self._inbox = inbox
        self.closed = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._run(), name="upstream process")
        await asyncio.sleep(0)  # the first step of the task starts the child
        if self.closed.done():
            raise UnreachableError(self.closed.result())

    async def request(self, message: JsonObject, fields: Mapping[str, str], *, subject: Subject | None) -> Response:
        del fields, subject
        with self._pending.expecting(message["id"]) as waiting:
            self._write(message)
            return await waiting

    async def send(self, message: JsonObject, fields: Mapping[str, str]) -> None:
        del fields
        self._pending.note_notification()
        self._write(message)

    def _write(self, message: JsonObject) -> None:
        if self.closed.done():
            raise ConnectionLostError(self.closed.result())
        if not self._input.write(jsonrpc.encode(message) + b"\n"):
            self._end("does not read its standard input")
            raise ConnectionLostError("does not read its standard input")

    async def listen(self, fields: Callable[[], Mapping[str, str]], ping: Callable[[], Awaitable[object]]) -> None:
        pass

    async def close(self) -> None:
        # MCP 2025-06-18 basic/lifecycle, "Shutdown": close the input first, then kill a server that does not exit.
        self._input.close()
        await asyncio.wait([self._running], timeout=CLOSE_SECONDS)
        self._end("was closed")
        await asyncio.wait([self._running])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            code = await self._processes.run(
                replace(self._command(self._input), stdout=self._take, stderr=self._feed_stderr),
                deadline=loop.time() + _FOREVER,
                permit=ConcurrencyPermit(()),  # not a call
            )
        except ExecutionError as error:
            self._lost(str(error))
        except asyncio.CancelledError:
            self._lost("was closed")
            raise
        except Exception:  # Boundary: calls must not wait forever after an internal error
            log.exception("running the process of an upstream failed")
            self._lost(INTERNAL_ERROR)
        else:
            self._end_text()
            how = f"exited with code {code}" if code >= 0 else f"was killed by signal {-code}"
            said = self._stderr.end(_STDERR_BYTES).decode(errors="replace").strip()
            last = "\n".join(said.splitlines()[-5:])
            self._lost(f"{how}: {last}" if last else how)

    def _feed_stderr(self, chunk: bytes) -> None:
        self._stderr.feed(chunk)
        self._stderr_tail.feed(chunk)

    def _take(self, chunk: bytes) -> None:
        try:
            self._split(chunk)
        except Exception:  # Boundary: see `_run`
            log.exception("reading a message of an upstream failed")
            self._end(INTERNAL_ERROR)

    def _split(self, chunk: bytes) -> None:
        if self._skipped:
            ended, newline, chunk = chunk.partition(b"\n")
            self._skip(ended, is_end=bool(newline))
            if not newline:
                return
        self._line += chunk
        # Searching only the new chunk avoids searching a long line repeatedly.
        if b"\n" not in chunk:
            if len(self._line) > MAX_LINE:
                self._skip(b"", is_end=False)
            return
        *lines, rest = bytes(self._line).split(b"\n")
        self._line = bytearray(rest)
        for line in lines:
            self._take_line(line)

    def _skip(self, more: bytes, *, is_end: bool) -> None:
        if not self._skipped:
            self._skipped, self._tail = len(self._line), bytes(self._line[-_TAIL:])
            del self._line[_TAIL:]
        self._skipped += len(more)
        self._tail = (self._tail + more)[-_TAIL:]
        said = f"a line of more than {MAX_LINE // 2**20} MiB"
        if is_end:
            self._pending.take([unreadable(bytes(self._line), said, end=self._tail)], self._inbox)
            self._line.clear()
            self._skipped = 0
        elif self._skipped > _KILL_FACTOR * MAX_LINE:
            self._end(f"writes {said}")

    def _take_line(self, line: bytes) -> None:
        if self._lines:
            if _MESSAGE_LINE.match(line) is None and self._size + len(line) <= MAX_LINE:
                self._add(line)
                return
            self._end_text()
        messages = messages_in(line)
        is_first = _FIRST_LINE.match(line) is not None and not line.rstrip().endswith((b"}", b"]"))
        if is_first and all(isinstance(each, Unreadable) for each in messages):
            self._add(line)
        else:
            self._take_messages(line, messages)

    def _add(self, line: bytes) -> None:
        self._cancel_join()
        self._lines.append(line)
        self._size += len(line) + 1
        last = line.rstrip()
        # Pretty printers open brackets at the ends of lines, and close them at the starts of lines.
        self._open += last.endswith((b"{", b"[")) - line.lstrip().startswith((b"}", b"]"))
        closing = b"]" if self._lines[0].lstrip().startswith(b"[") else b"}"
        if self._open <= 0 and last.endswith(closing) and not last.strip(b"]}"):
            self._end_text()
        else:
            self._joining = asyncio.get_running_loop().call_later(_JOIN_SECONDS, self._end_text)

    def _end_text(self) -> None:
        self._cancel_join()
        lines, self._lines = self._lines, []
        self._size = self._open = 0
        text = b"\n".join(lines)
        messages = messages_in(text) if lines else []
        is_text = any(not isinstance(each, Unreadable) or each.answers is not None for each in messages)
        if is_text or len(lines) > _MAX_SINGLE_LINES:
            self._take_messages(text, messages)
        else:
            for line in lines:
                self._take_messages(line, messages_in(line))

    def _cancel_join(self) -> None:
        if self._joining is not None:
            self._joining.cancel()

    def _take_messages(self, text: bytes, messages: list[Incoming | Response]) -> None:
        if not text.strip() or self.closed.done():
            return
        # Some servers also log to standard output.
        is_non_mcp = all(isinstance(each, Unreadable) and each.answers is None for each in messages)
        self._non_mcp_bytes = self._non_mcp_bytes + len(text) + 1 if is_non_mcp else 0
        self._has_spoken = self._has_spoken or not is_non_mcp
        if is_non_mcp and not self._has_spoken:
            self.non_mcp_output = self.non_mcp_output or text[:_EXCERPT_BYTES].decode(errors="replace").strip()
        if self._non_mcp_bytes > MAX_NON_MCP_BYTES:
            self._end("writes text that is not MCP to standard output")
        self._pending.take(messages, self._inbox)

    def _end(self, reason: str) -> None:
        # Set first, because the cancelled task would set another reason.
        self._lost(reason)
        self._running.cancel()

    def _lost(self, reason: str) -> None:
        self._cancel_join()
        if not self.closed.done():
            self.closed.set_result(reason)
            self._pending.fail(ConnectionLostError(reason))


class LineTail:
    def __init__(self) -> None:
        self._lines: Final[deque[bytes]] = deque(maxlen=_TAIL_LINES)
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        *ended, rest = chunk[-_TAIL_LINES * _TAIL_LINE_BYTES :].split(b"\n")
        for line in ended:
            self._lines.append((self._rest + line)[:_TAIL_LINE_BYTES])
            self._rest = b""
        self._rest = (self._rest + rest)[:_TAIL_LINE_BYTES]

    @property
    def text(self) -> str:
        lines = [*self._lines, *([self._rest] if self._rest else [])]
        return b"\n".join(lines).decode(errors="replace")
