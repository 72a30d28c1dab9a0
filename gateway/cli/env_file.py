"""Reads `--env-file`. Imported only if the flag is given, because it imports several packages."""

import os
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from dotenv.parser import Binding, parse_stream

from gateway.errors import ConfigError, Problem


def set_variables(path: Path) -> None:
    """Set the variables of a file that are not set yet. Values are literal: `$NAME` is not replaced.

    Raises:
        ConfigError: the file cannot be read, or lines are malformed. Their text can be secret, so it is not shown.
    """
    try:
        # Not only regular files, because shells pass `<(command)` as a pipe.
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError.at("--env-file", f"cannot read {path}: {error.strerror}") from error
    except ValueError:
        # `from None`: the UnicodeDecodeError contains the bytes.
        raise ConfigError.at("--env-file", f"{path} is not UTF-8 text") from None
    bindings = list(parse_stream(StringIO(text)))
    if problems := list(_problems(bindings, path)):
        raise ConfigError(problems)
    variables = {binding.key: binding.value for binding in bindings}  # as in shells, the last one wins
    for name, value in variables.items():
        if name is not None and value is not None:
            os.environ.setdefault(name, value)


def _problems(bindings: list[Binding], path: Path) -> Iterator[Problem]:
    for binding in bindings:
        is_empty = binding.key is None and not binding.error
        has_nul = "\0" in f"{binding.key}{binding.value}"
        if not is_empty and (binding.value is None or not binding.key or "=" in binding.key or has_nul):
            text = binding.original.string
            # A binding includes the empty lines before it.
            empty_lines = text[: len(text) - len(text.lstrip())].count("\n")
            yield Problem(message="expected NAME=value", path=f"{path}:{binding.original.line + empty_lines}")
