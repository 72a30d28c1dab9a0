"""Reads files, standard input, answers to prompts, and the claims of `--as`."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from gateway.access.claims import identity_of_claims
from gateway.access.identity import ANONYMOUS, Identity
from gateway.cli.parser import Parser
from gateway.config.models.auth import Auth
from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import plain
from gateway.config.reading.source_file import SourceFile
from gateway.errors import ConfigError

_MAX_BYTES: Final = 256 * 2**20
"""Larger than any message. Stops devices such as /dev/zero."""
_PIECE: Final = 2**20


def given_bytes(path: str, *, where: str) -> bytes:
    """Return the content of a file, pipe or device, or of standard input for `-`.

    Raises:
        ConfigError: the content cannot be read or is larger than 256 MiB. `where` names the argument in the error.
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
    except ValueError as error:  # the path contains NUL
        raise ConfigError.at(where, f"cannot be read: {error}") from error
    if len(data) > _MAX_BYTES:
        raise ConfigError.at(where, f"cannot be read: it is larger than {_MAX_BYTES // 2**20} MiB")
    return bytes(data)


def given_text(path: str, *, where: str) -> str:
    """Return the content of a UTF-8 file, or of standard input for `-`. Line ends are kept.

    Raises:
        ConfigError: see `given_bytes`; or the content is not UTF-8.
    """
    data = given_bytes(path, where=where)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"is not UTF-8 (byte 0x{data[error.start]:02x} in line {line})"
        raise ConfigError.at(where, f"cannot be read: {reason}") from error


def _read(file: BinaryIO) -> bytearray:
    data = bytearray()
    while len(data) <= _MAX_BYTES and (piece := file.read(_PIECE)):
        data += piece
    return data


def given_line() -> str:
    """Return the next line of standard input, or an empty string at its end."""
    with _interruptible():
        return sys.stdin.readline()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt a blocking read. `asyncio.Runner` would only cancel the task."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # SIGINT is ignored
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


_FLAG = "--as"


def add_as(parser: Parser) -> None:
    parser.add_argument(
        _FLAG,
        dest="caller",
        metavar="FILE",
        default=None,
        help="run as the caller with these claims: a YAML or JSON file such as {sub: ann, groups: [ops]}",
    )


def given_caller(name: str | None, auth: Auth | None) -> Identity:
    """Return the identity that the named file describes; without a name, the anonymous identity.

    Raises:
        ConfigError: the file cannot be read, or describes no caller whom `auth` would accept.
    """
    if name is None:
        return ANONYMOUS
    composition = compose(SourceFile(Path(name).absolute(), given_text(name, where=name)))
    if composition.diagnostics:
        raise ConfigError.at(name, composition.diagnostics[0].message)
    claims = None if composition.root is None else plain(composition.root)
    try:
        return identity_of_claims(claims, auth)
    except ValueError as error:
        raise ConfigError.at(name, str(error)) from error
