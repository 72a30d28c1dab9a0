"""Executors for resources that are files: one file, or those that globs match. Read at each call, up to a size limit.

Why the globs are matched again at each read: what was listed may be gone, and what was not may be there now. A file
that they do not match *now* is not found, and neither is anything that is not a regular file under their root.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import is_directory
from gateway.errors import ExecutionError, ResourceNotFoundError
from gateway.executors.files.globs import Globs, compile_globs, split_glob
from gateway.executors.files.regular_files import NotServedError, TooLargeError, read_beneath, read_regular
from gateway.executors.invocation import Explanation, Invocation, Outcome, RawOutput
from gateway.language.files.media_types import media_type_of
from gateway.threads import DaemonThreadPool, run_in_thread

_READS: Final = "reads a file"
# A path through a file, round in a circle of links, or too long leads to no file either.
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


class FileReader(msgspec.Struct, frozen=True, kw_only=True):
    """Reads files of one definition."""

    threads: DaemonThreadPool
    max_size: int

    async def read(self, path: str, invocation: Invocation) -> bytes | None:
        """The bytes of a file that the operator named; None if there is none.

        Raises:
            ExecutionError: it is too large, or cannot be read, or not in time.
        """
        return await self._run(partial(read_regular, path, max_size=self.max_size), invocation)

    async def read_beneath(self, globs: Globs, path: str, invocation: Invocation) -> bytes | None:
        """The bytes of a file that a caller named; None if there is none under the root of `globs`.

        Raises:
            ExecutionError: it is too large, or cannot be read, or not in time.
        """
        return await self._run(
            partial(read_beneath, globs.root, path, place=globs.place, max_size=self.max_size), invocation
        )

    async def _run(self, read: Callable[[], bytes], invocation: Invocation) -> bytes | None:
        try:
            return await run_in_thread(read, what="Reading the file", call=invocation, threads=self.threads)
        except NotServedError:
            return None
        except TooLargeError as error:
            raise ExecutionError(f"The file is larger than {self.max_size:,} bytes (`max_size`)") from error
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            # The text is the system's for this number alone: the error's own names the absolute path.
            raise ExecutionError(f"The file cannot be read: {os.strerror(error.errno or errno.EIO)}") from error


class SingleFile(msgspec.Struct, frozen=True, kw_only=True):
    """`file:`: the one file of a resource."""

    path: str
    uri: str
    reader: FileReader

    def explain(self, _invocation: Invocation) -> Explanation:
        return Explanation(does=_READS, facts={"path": self.path, "max_size": self.reader.max_size})

    async def execute(self, invocation: Invocation) -> Outcome:
        data = await self.reader.read(self.path, invocation)
        if data is None:
            raise ResourceNotFoundError(self.uri)
        return RawOutput(data=data, media_type=media_type_of(self.path))


class ServedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """`files:`: the files that globs match, under URIs that begin with one prefix."""

    globs: Globs
    prefix: str
    """The beginning of its URIs, such as `runbooks:///`."""
    reader: FileReader

    def uri_of(self, path: str) -> str:
        # The octets are quoted, which need not be UTF-8 (RFC 3986 §2.5). For one invalid URI the official Python client
        # (1.x) refuses a whole list.
        return self.prefix + quote(os.fsencode(path), safe="/")

    def path_of(self, uri: str) -> str | None:
        """The path that a URI asks for, decoded once; None if the globs mean none."""
        if not uri.startswith(self.prefix):
            return None
        # RFC 3986 §2.4: never decoded twice. `%252e%252e` is a name with percent signs.
        path = os.fsdecode(unquote_to_bytes(uri.removeprefix(self.prefix)))
        return path if self.means(path) else None

    def explain(self, path: str) -> Explanation:
        """Say which file `read` would read.

        Raises:
            ResourceNotFoundError: the globs mean no such path.
        """
        if not self.means(path):
            raise ResourceNotFoundError(self.uri_of(path))
        return Explanation(
            does=_READS,
            facts={
                "path": str(Path(self.globs.root, path)),
                "root": self.globs.root,
                "max_size": self.reader.max_size,
            },
        )

    async def read(self, path: str, invocation: Invocation) -> RawOutput:
        """Read one file, as the globs and the directory are now.

        Raises:
            ResourceNotFoundError: they mean no such file.
            ExecutionError: it is too large, or cannot be read, or not in time.
        """
        data = await self.reader.read_beneath(self.globs, path, invocation) if self.means(path) else None
        if data is None:
            raise ResourceNotFoundError(self.uri_of(path))
        return RawOutput(data=data, media_type=media_type_of(path))

    def means(self, path: str) -> bool:
        """Whether a path is one that is read, if there is a file."""
        return _is_plain(path) and self.globs.matches(path)


class ListedFile(msgspec.Struct, frozen=True):
    """One file that was there when the catalog was compiled."""

    files: ServedFiles
    path: str
    digest: str | None = None
    """SHA-256 of its bytes, in hexadecimal, where they were reviewed: it is read as it was then, or not at all."""

    def explain(self, _invocation: Invocation) -> Explanation:
        return self.files.explain(self.path)

    async def execute(self, invocation: Invocation) -> Outcome:
        outcome = await self.files.read(self.path, invocation)
        # Of the bytes that are answered: the file may change between one reading and another.
        if self.digest is not None and hashlib.sha256(outcome.data).hexdigest() != self.digest:
            raise ExecutionError("The file has changed since it was reviewed")
        return outcome


class RequestedFile(msgspec.Struct, frozen=True):
    """The file that a URI's variable names. Matches such URIs, too: the prefix as it is, and the rest as a path."""

    files: ServedFiles
    variable: str

    def match(self, uri: str) -> dict[str, str] | None:
        path = self.files.path_of(uri)
        return None if path is None else {self.variable: path}

    def explain(self, invocation: Invocation) -> Explanation:
        return self.files.explain(invocation.arguments[self.variable])

    async def execute(self, invocation: Invocation) -> Outcome:
        return await self.files.read(invocation.arguments[self.variable], invocation)


def _is_plain(path: str) -> bool:
    """Whether every segment is a name, and no character could be taken for something else by another system."""
    return not ("\0" in path or "\\" in path) and all(name not in {"", ".", ".."} for name in path.split("/"))


def compile_file_globs(
    globs: Sequence[str], *, root: str | None, problems: Problems, look_at: Callable[[Path], None] = lambda _: None
) -> Globs | None:
    """Settle the root and the patterns below it; None where they were written wrongly, which is then reported.

    `problems` is where `files` and `root` stand. Without `root` there is one glob, and its first part is the root.
    `look_at` is told the root, even if it is not there.
    """
    base, below = root, globs
    if base is None:
        base, glob = split_glob(globs[0])
        below = [glob]
    patterns = [_pattern(glob, root=base, problems=problems.at("files", index)) for index, glob in enumerate(below)]
    directory = os.path.normpath(problems.directory / base)
    look_at(Path(directory))
    if not is_directory(directory):
        problems.at("files" if root is None else "root").error(f"there is no directory `{base}`")
        return None
    good = [pattern for pattern in patterns if pattern is not None]
    return compile_globs(directory, good) if len(good) == len(patterns) else None


def _pattern(pattern: str, *, root: str, problems: Problems) -> str | None:
    if pattern.startswith("/"):
        problems.error(f"with `root` a glob is relative to it; `{pattern}` is absolute")
        return None
    names = [name for name in pattern.split("/") if name not in {"", "."}]
    if ".." in names:
        problems.error(f"`..` leads outside the root `{root}`")
        return None
    if not names:
        problems.error("expected a path or a glob such as docs/**/*.md")
        return None
    return "/".join(names)
