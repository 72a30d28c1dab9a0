"""Reads a file with a size limit. Only regular files are read, because a FIFO or device could block the daemon."""

import hashlib
import json
import os
import pickle
import stat
from functools import cached_property
from pathlib import Path
from re import compile as regex
from typing import Final

import msgspec

from gateway.errors import Location
from gateway.json_types import Json

_KEY_BYTES: Final = 16


def content_key(*values: object) -> bytes:
    """Return a digest of plain data or models.

    The values are pickled and never unpickled. Comparing them would confuse interpolated text with plain text, and 1
    with true.
    """
    return hashlib.blake2b(pickle.dumps(values), digest_size=_KEY_BYTES).digest()


def digest_of_written(value: Json, directory: str) -> str:
    """Return a digest of a definition as written in a file of `directory`, which its relative paths start from."""
    return digest_of_json([value, directory])


def digest_of_json(value: Json) -> str:
    # Lock files contain this digest, so its input must never change, not even in whitespace.
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


MAX_FILE_BYTES: Final = 10 * 2**20

LINE_BREAK: Final = regex("\r\n|[\n\r\x85\u2028\u2029]")
"""Line breaks of YAML's scanner, so that its marks match our lines."""


class UnreadableError(Exception):
    """A file cannot be used. `line` and `column` locate the reason, if known."""

    def __init__(self, reason: str, *, line: int = 1, column: int = 1) -> None:
        super().__init__(reason)
        self.line = line
        self.column = column


class SourceFile(msgspec.Struct, frozen=True, dict=True):
    """The text of a file. All nodes of the file share one instance."""

    path: Path
    """Absolute, with symbolic links unresolved, so that relative paths mean what the author saw."""
    text: str
    is_of_client: bool = False
    """Whether it is a configuration file of an MCP client, in which `${NAME}` is a variable."""

    @cached_property
    def lines(self) -> tuple[str, ...]:
        return tuple(LINE_BREAK.split(self.text))

    @cached_property
    def directory(self) -> Path:
        """The directory that relative paths start from.

        For a client's file such as `.vscode/mcp.json` or `.kiro/settings/mcp.json`, this is the project directory.
        """
        directory = self.path.parent
        if not self.is_of_client:
            return directory
        hidden = directory.parent if directory.parent.name in {".kiro", ".continue"} else directory
        return hidden.parent if hidden.name.startswith(".") else directory

    def location(self, line: int, column: int) -> Location:
        return Location(file=self.path, line=line, column=column)


def read_bytes(path: Path, *, at_most: int = MAX_FILE_BYTES) -> bytes:
    """Read a regular file of at most `at_most` bytes.

    Raises:
        UnreadableError: it is missing, not a regular file, not readable, or too large.
    """
    try:
        # fifo(7): without O_NONBLOCK, this would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = _read_regular(descriptor, at_most)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise UnreadableError(_reason(error)) from error
    if len(data) > at_most:
        raise UnreadableError(f"is larger than {at_most // 2**20} MiB")
    return data


def _read_regular(descriptor: int, at_most: int) -> bytes:
    # Checked on the open file, because the path may have been replaced.
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        raise UnreadableError("is a directory" if stat.S_ISDIR(mode) else "is not a regular file")
    with open(descriptor, "rb", closefd=False) as file:
        # `st_size` is not reliable: the file can grow, and files in /proc report 0.
        return file.read(at_most + 1)


def decode(data: bytes) -> str:
    """Decode UTF-8 without a byte order mark.

    Raises:
        UnreadableError: the data is not UTF-8. It contains the position.
    """
    try:
        # YAML 1.2 §5.2: a byte order mark at the start is not part of the text.
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        lines = LINE_BREAK.split(before)
        raise UnreadableError(
            f"is not UTF-8 (byte 0x{data[error.start]:02x})", line=len(lines), column=len(lines[-1]) + 1
        ) from error


def has_surrogate(text: str) -> bool:
    """Whether a text contains an unpaired surrogate, which UTF-8 cannot represent."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "permission denied"
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
