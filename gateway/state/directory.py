"""The state directory: where it is, who may use it, and which daemon does. Blocking, at the start alone."""

import fcntl
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from gateway.config.settings import NO_STATE

_LOCK: Final = "lock"
_MODE: Final = 0o700


def directory_of(given: str | None, *, config: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the directory that a daemon's state belongs into; None: it is to have none.

    1. what was given: `--state-dir`, `MCP_GATEWAY_STATE_DIR`
    2. systemd's `StateDirectory=`: systemd.exec(5), $STATE_DIRECTORY; of several, the first
    3. one per file below $XDG_STATE_HOME: XDG Base Directory Specification, which ignores relative paths
    """
    if given is not None:
        return None if given == NO_STATE else Path(given).absolute()
    if by_systemd := environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(by_systemd)
    home = Path(environ.get("XDG_STATE_HOME", ""))
    if not home.is_absolute():
        try:
            home = Path("~/.local/state").expanduser()
        except RuntimeError:  # a user without a home
            return None
    path = config.absolute()
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    return home / "mcp-gateway" / f"{path.stem}-{digest}"


class StateDirectory:
    """The directory, made and locked while the context lasts; without a path, where it may not or cannot be used."""

    def __init__(self, wanted: Path | None) -> None:
        self.wanted: Final = wanted
        self.path: Path | None = None
        """The directory, once it is locked."""
        self.problem = ""
        """Why it is not used; empty where it is, or where none is wanted."""
        self._lock: int | None = None

    def __enter__(self) -> Self:
        if self.wanted is not None:
            try:
                self._take(self.wanted)
            except BlockingIOError:
                self.problem = f"{self.wanted} is in use by another daemon"
            except OSError as error:
                self.problem = f"{error.filename or self.wanted}: {error.strerror}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def _take(self, wanted: Path) -> None:
        wanted.mkdir(mode=_MODE, parents=True, exist_ok=True)
        if wanted.stat().st_mode & 0o077:
            wanted.chmod(_MODE)
        lock = os.open(wanted / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Not flock(), which a child that is forked and not executed, as of multiprocessing, would hold on to.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(lock)
            raise
        self._lock, self.path = lock, wanted
