"""Write the lock of a file, or say how the file differs from it."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.app.rehearsal.rehearsal import rehearsed
from gateway.catalog.lock import Difference, differences, read_lock, rendered
from gateway.config.settings import Settings
from gateway.errors import ConfigError, Problem

_MODE = 0o644
"""It holds no secret, and whoever reviews it must be able to read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A file beside its lock."""

    path: Path
    """Of the lock."""
    differences: Sequence[Difference]


def write_lock(settings: Settings) -> Comparison:
    """Lock every definition as it is now, and return what that has changed. Plugins are imported.

    Raises:
        ConfigError: the file cannot be served, or the lock cannot be written.
    """
    with rehearsed(settings, heeds_lock=False) as rehearsal:
        pins = rehearsal.catalog.pins
        lock = read_lock(rehearsal.loaded.root)
    text = rendered(pins)
    try:
        if not lock.path.is_file() or lock.path.read_text(encoding="utf-8", errors="replace") != text:
            _replace(lock.path, text)
    except OSError as error:
        raise _unwritable(lock.path, error) from error
    return Comparison(path=lock.path, differences=differences(pins, lock.pins or {}))


def compare_lock(settings: Settings) -> Comparison:
    """Say what is not as it was locked.

    Raises:
        ConfigError: the file cannot be served, or there is no lock that can be read.
    """
    with rehearsed(settings, heeds_lock=False) as rehearsal:
        lock = read_lock(rehearsal.loaded.root)
        if lock.pins is None:
            message = f"{lock.trouble or 'there is no such file'}; `mcp-gateway lock` writes it"
            raise ConfigError([Problem(message=message, path=str(lock.path))])
        return Comparison(path=lock.path, differences=differences(rehearsal.catalog.pins, lock.pins))


def _replace(path: Path, text: str) -> None:
    """Write the whole file or nothing: a daemon may be reading it."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), _MODE)
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError([Problem(message=f"cannot be written: {error.strerror}", path=str(path))])
