"""Reads what people give to a command: files and standard input whole, and lines that answer a question."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from gateway.errors import ConfigError

_MAX_BYTES: Final = 256 * 2**20
"""More than any message may have in practice: a device such as /dev/zero never ends."""
_PIECE: Final = 2**20


def given_bytes(path: str, *, where: str) -> bytes:
    """The content of a file, or of standard input for `-`. It may be a pipe or a device.

    Raises:
        ConfigError: it cannot be read, or has more than 256 MiB; the problem stands at `where`.
    """
    try:
        with _interruptible():
            if path == "-":
                data = _read(sys.stdin.buffer)
            else:
                with Path(path).open("rb") as file:
                    data = _read(file)
    except OSError as error:
        raise ConfigError.at(where, f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # a path that holds NUL
        raise ConfigError.at(where, f"cannot be read: {error}") from error
    if len(data) > _MAX_BYTES:
        raise ConfigError.at(where, f"cannot be read: has more than {_MAX_BYTES // 2**20} MiB")
    return bytes(data)


def given_text(path: str, *, where: str) -> str:
    """The content of a text file, or of standard input for `-`, in UTF-8 whatever the locale, with its line ends.

    Raises:
        ConfigError: as `given_bytes`, or it is not UTF-8.
    """
    data = given_bytes(path, where=where)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"is not UTF-8 (byte 0x{data[error.start]:02x} in line {line})"
        raise ConfigError.at(where, f"cannot be read: {reason}") from error


def _read(file: BinaryIO) -> bytearray:
    """The content, or the beginning of one that is too large."""
    data = bytearray()
    while len(data) <= _MAX_BYTES and (piece := file.read(_PIECE)):
        data += piece
    return data


def given_line() -> str:
    """The next line of standard input."""
    with _interruptible():
        return sys.stdin.readline()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let the first Ctrl-C end the reading, which blocks the event loop: `asyncio.Runner` only cancels its task."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # ignored
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
