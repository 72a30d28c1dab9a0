"""Facts about the machine that compile steps ask for (files, programs), noted so that they can be asked for again.

Why: a reload does not compile a definition again that has not changed, unless the machine has changed beneath it: a
program that is on the PATH now, a directory that has become a link, a renewed certificate. So whatever looks at the
machine while a definition is compiled is marked `@machine_fact`. Outside of a compilation such a function is itself.

None of them raises. pathlib's do where a directory is closed to the daemon, a name is too long or a path holds a NUL:
nothing usable lies at such a path, and the caller reports that at its place in the file.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from gateway.json_types import Json

P = ParamSpec("P")
T = TypeVar("T")

Question = tuple[Callable[..., Json], tuple[Json, ...], tuple[tuple[str, Json], ...]]
"""A function with its arguments."""

Facts = Mapping[Question, Json]
"""Questions, and their answers."""

_log: Final[ContextVar["FactLog | None"]] = ContextVar("machine facts", default=None)


def machine_fact(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function whose answer is a fact about the machine; it does not raise, and its arguments are hashable."""

    @wraps(function)
    def ask(*args: P.args, **kwargs: P.kwargs) -> T:
        log = _log.get()
        if log is None:
            return function(*args, **kwargs)
        answer: T = log.ask((function, args, tuple(kwargs.items())))
        return answer

    return ask


class FactLog:
    """The facts of one compilation. A question is asked once: all definitions see the machine as it was then."""

    def __init__(self) -> None:
        self._answers: dict[Question, Json] = {}
        self._noted: dict[Question, Json] = {}

    @contextmanager
    def noting(self) -> Iterator[Facts]:
        """Note what is asked for meanwhile."""
        # The answers stay: later definitions are told the same, and note what they asked for themselves.
        noted = self._noted = {}
        token = _log.set(self)
        try:
            yield noted
        finally:
            _log.reset(token)

    def ask(self, question: Question) -> Json:
        if question not in self._answers:
            function, args, kwargs = question
            self._answers[question] = function(*args, **dict(kwargs))
        answer = self._noted[question] = self._answers[question]
        return answer

    def still_hold(self, facts: Facts) -> bool:
        """Ask for these facts again, and say whether the answers are the same."""
        return all(self.ask(question) == answer for question, answer in facts.items())


@machine_fact
def is_file(path: str | Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - see the top


@machine_fact
def is_directory(path: str | Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - see the top


@machine_fact
def exists(path: str | Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - see the top


@machine_fact
def is_link(path: str) -> bool:
    return os.path.islink(path)  # noqa: PTH114 - see the top


@machine_fact
def real_path(path: str | Path) -> str:
    """The path with its links resolved, as far as it exists."""
    return os.path.realpath(path)


@machine_fact
def program_path(name: str) -> str | None:
    """The program of this name on the daemon's PATH."""
    return shutil.which(name)


@machine_fact
def content_digest(path: Path) -> str:
    """SHA-256 of a small file; empty if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


@machine_fact
def open_to_all(path: Path) -> str | None:
    """Say that every user may write to a file, or to a directory (one with the sticky bit is nobody's else).

    Threat: who may write to the file, to a plugin, or to the directory in which it lies, runs commands as the daemon.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - pathlib's raises where a name has a NUL
    except (OSError, ValueError):
        return None
    # inode(7): where this bit is set, as on /tmp, others cannot remove or rename what is not theirs.
    is_shared = stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)
    if not mode & stat.S_IWOTH or is_shared or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return None
    what = "directory" if stat.S_ISDIR(mode) else "file"
    return f"every user of this machine may change this {what}: `chmod o-w {path}`"


@machine_fact
def new_each_time() -> object:
    """A fact that never holds again: for a step that looks at more than is worth noting, such as whole directories."""
    return object()


def is_unreadable(path: Path) -> bool:
    """Whether permissions hide what lies there: another user, such as the daemon's, may see more."""
    try:
        path.stat()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return False
