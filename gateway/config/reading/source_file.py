"""Reads regular files with a size limit. Reading a FIFO or device could block the daemon."""

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

from gateway.json_types import Json

_KEY_BYTES: Final = 16


def content_key(*values: object) -> bytes:
    """Return a digest of plain data or models, for use as a cache key.

    The values are pickled but never unpickled. Comparing values with `==` would not distinguish interpolated text from
    plain text, or 1 from true.
    """
    return hashlib.blake2b(pickle.dumps(values), digest_size=_KEY_BYTES).digest()


def digest_of_json(value: Json) -> str:
    # Lock files contain this digest, so the format of `text` must never change, not even its whitespace.
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


MAX_FILE_BYTES: Final = 10 * 2**20

LINE_BREAK: Final = regex("\r\n|[\n\r\x85\u2028\u2029]")
"""The line breaks that PyYAML's scanner counts. Otherwise, PyYAML's line numbers would point to wrong lines."""


class UnreadableError(Exception):
    """Raised if a file or value cannot be used. `line` and `column` locate the reason."""

    def __init__(self, reason: str, *, line: int = 1, column: int = 1) -> None:
        super().__init__(reason)
        self.line = line
        self.column = column


class SourceFile(msgspec.Struct, frozen=True, dict=True):
    """The text of a file, shared by its nodes."""

    path: Path
    """Absolute path. Symbolic links are not resolved, so relative paths refer to the directory that the author sees."""
    text: str
    is_of_client: bool = False
    """Whether this is a file of an MCP client, where `${NAME}` refers to an environment variable."""

    @cached_property
    def lines(self) -> tuple[str, ...]:
        return tuple(LINE_BREAK.split(self.text))

    @cached_property
    def directory(self) -> Path:
        """The directory to which relative paths in the file refer.

        For a client's file such as `.vscode/mcp.json` or `.kiro/settings/mcp.json`, this is the project directory.
        """
        directory = self.path.parent
        if not self.is_of_client:
            return directory
        hidden = directory.parent if directory.parent.name in {".kiro", ".continue"} else directory
        return hidden.parent if hidden.name.startswith(".") else directory


def read_bytes(path: Path, *, at_most: int = MAX_FILE_BYTES) -> bytes:
    """Read a regular file.

    Raises:
        UnreadableError: the file is missing, not regular, not readable, or larger than `at_most` bytes.
    """
    try:
        # fifo(7): without O_NONBLOCK, opening waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # Check the open file, because the path can refer to another file by now.
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise UnreadableError("is a directory" if stat.S_ISDIR(mode) else "is not a regular file")
            with open(descriptor, "rb", closefd=False) as file:
                # `st_size` can be outdated, and is 0 in /proc.
                data = file.read(at_most + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise UnreadableError(_reason(error)) from error
    if len(data) > at_most:
        raise UnreadableError(f"is larger than {at_most // 2**20} MiB")
    return data


def decode(data: bytes) -> str:
    """Decode UTF-8 without a byte order mark.

    Raises:
        UnreadableError: the data is not UTF-8. The error locates the first invalid byte.
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
    """Whether a string contains an unpaired surrogate, which UTF-8 cannot represent."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "permission denied"
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
