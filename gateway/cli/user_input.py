"""Reads user input: positional arguments, files, standard input, and the claims file of `--as`."""

import re
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import orjson

from gateway import exact_json
from gateway.access.claims import identity_of_claims
from gateway.access.identity import ANONYMOUS, Identity
from gateway.config.machine_facts import is_directory
from gateway.config.models.auth import Auth
from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import plain
from gateway.config.reading.source_file import SourceFile
from gateway.errors import ConfigError
from gateway.json_types import Json

_MAX_BYTES: Final = 256 * 2**20
"""Maximum bytes to read. The limit protects against endless devices such as /dev/zero."""


def input_bytes(path: str, *, where: str) -> bytes:
    """Return the content of a file, pipe or device, or of standard input for `-`.

    `where` is the command-line argument that errors name.
    """
    try:
        with _interruptible():
            if path == "-":
                data = sys.stdin.buffer.read(_MAX_BYTES + 1)
            else:
                with Path(path).open("rb") as file:
                    data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError.at(where, f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # the path contains NUL
        raise ConfigError.at(where, f"cannot be read: {error}") from error
    if len(data) > _MAX_BYTES:
        raise ConfigError.at(where, f"cannot be read: it is larger than {_MAX_BYTES // 2**20} MiB")
    return data


def input_text(path: str, *, where: str) -> str:
    """Return the text of a UTF-8 file, or of standard input for `-`. Line ends are kept."""
    data = input_bytes(path, where=where)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"is not UTF-8 (byte 0x{data[error.start]:02x} in line {line})"
        raise ConfigError.at(where, f"cannot be read: {reason}") from error


def input_line() -> str:
    """Return the next line of standard input, or an empty string at the end of the input."""
    with _interruptible():
        return sys.stdin.readline()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make Ctrl-C interrupt a blocking read. The handler of `asyncio.Runner` would only cancel the task."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # SIGINT is ignored
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def caller_from_claims(name: str | None, auth: Auth | None) -> Identity:
    """Return the identity with the claims in the file `name`, or the anonymous identity if `name` is None."""
    if name is None:
        return ANONYMOUS
    root, diagnostics = compose(SourceFile(Path(name).absolute(), input_text(name, where=name)))
    if diagnostics:
        raise ConfigError.at(name, diagnostics[0].message)
    claims = None if root is None else plain(root)
    try:
        return identity_of_claims(claims, auth)
    except ValueError as error:
        raise ConfigError.at(name, str(error)) from error


_EXPECTED: Final = "expected key=text, key:=json or key@=file"


def split_config(words: Sequence[str], *, url: str | None, needs_name: bool = False) -> tuple[str | None, list[str]]:
    """Return CONFIG and the remaining words. CONFIG is None with a `url`, or if the first word is not a path.

    With `needs_name`, the words must contain a name. If only the first word can be the name, a directory with that name
    is not used as CONFIG.
    """
    if url is not None or not words:
        return None, list(words)
    is_name = needs_name and (len(words) == 1 or "=" in words[1])
    if _is_path(words[0]) or (is_directory(words[0]) and not is_name):
        return words[0], list(words[1:])
    return None, list(words)


def split_action(words: Sequence[str], actions: Sequence[str]) -> tuple[str, list[str]]:
    """Return the action and the remaining words. If no action is given, return the first of `actions`."""
    return (words[0], list(words[1:])) if words and words[0] in actions else (actions[0], list(words))


def name_and_pairs(words: list[str], what: str) -> list[str]:
    """Check that the first word is the name of a tool or prompt, and return the words."""
    if not words:
        raise ConfigError.at(what, "is missing")
    check_text(words[0])
    return words


def check_text(word: str) -> None:
    """Raise ConfigError if a word is not valid UTF-8, because JSON cannot contain the word (RFC 8259 §8.1)."""
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise ConfigError.at(word, "is not valid UTF-8") from error


_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""Matches the start of a URI (RFC 3986 §3.1)."""


def _is_path(word: str) -> bool:
    return _URI.match(word) is None and (word.endswith((".yaml", ".yml")) or "/" in word)


def arguments_of(pairs: Iterable[str], *, json: str | None = None) -> dict[str, Json]:
    """Return the arguments in `key=value` words and in the JSON object `json`. The words take precedence."""
    arguments = _object(json) if json is not None else {}
    files: dict[str, list[str]] = {}
    for key, value in map(_argument, pairs):
        arguments[key] = value
        if isinstance(value, str) and value.startswith("@"):  # several files with the same key become a list
            files.setdefault(key, []).append(value)
            arguments[key] = files[key] if len(files[key]) > 1 else value
    return arguments


def _argument(pair: str) -> tuple[str, Json]:
    key, separator, value = pair.partition("=")
    if not separator or key in {"", ":", "@"}:
        raise ConfigError.at(pair, _EXPECTED)
    # A file name can contain any bytes, because only the content of the file is sent.
    check_text(key if key.endswith("@") or value.startswith("@") else pair)
    match key[-1]:
        case ":":
            return key[:-1], _json(value, where=pair)
        case "@":
            return key[:-1], input_text(value, where=pair)
        case _:
            return key, value


def _object(json: str) -> dict[str, Json]:
    value = _json(json, where="--json")
    if not isinstance(value, dict):
        raise ConfigError.at("--json", 'expected an object such as {"key": "value"}')
    return value


def _json(text: str, *, where: str) -> Json:
    try:
        return exact_json.loads(text)
    except orjson.JSONDecodeError as error:
        raise ConfigError.at(where, f"is not JSON: {error}") from error
