"""Executors for resources that are files: a single file, or the files that match globs.

Each read matches the globs again, because files can appear and disappear after a listing.
"""

import errno
import hashlib
import os
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from gateway.errors import ExecutionError, ResourceNotFoundError
from gateway.executors.files.globs import GlobSource
from gateway.executors.files.regular_files import NotServedError, TooLargeError, read_regular
from gateway.executors.invocation import Explanation, Invocation, Outcome, RawOutput
from gateway.language.files.media_types import media_type_of
from gateway.threads import DaemonThreadPool, run_in_thread

_READS: Final = "reads a file"
# Errors for a path that does not exist, leads through a file or a cycle of links, or is too long.
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


class FileReader(msgspec.Struct, frozen=True, kw_only=True):
    threads: DaemonThreadPool
    max_size: int

    async def read(self, path: str, invocation: Invocation) -> bytes | None:
        """Read a file that the configuration names. Return None if the file does not exist.

        Raises:
            ExecutionError: the file is too large, cannot be read, or takes too long to read.
        """
        return await self._run(partial(read_regular, path, max_size=self.max_size), invocation)

    async def read_matched(self, globs: GlobSource, path: str, invocation: Invocation) -> bytes | None:
        """Read a file, or return None if `globs` does not serve the file. Raises the same errors as `read`."""
        return await self._run(partial(globs.read, path, max_size=self.max_size), invocation)

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
            # `str(error)` would show the absolute path to the caller.
            raise ExecutionError(f"Cannot read the file: {os.strerror(error.errno or errno.EIO)}") from error


class SingleFile(msgspec.Struct, frozen=True, kw_only=True):
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
    """The files of a `files:` block. The URIs of all files start with `prefix`."""

    globs: GlobSource
    prefix: str
    reader: FileReader

    def uri_of(self, path: str) -> str:
        # Percent-encode the path, which need not be UTF-8 (RFC 3986 §2.5). The official Python client (1.x) rejects a
        # whole list that contains an invalid URI.
        return self.prefix + quote(os.fsencode(path), safe="/")

    def path_of(self, uri: str) -> str | None:
        """Return the path that a URI encodes, or None if the globs do not match this path."""
        if not uri.startswith(self.prefix):
            return None
        # Decode only once (RFC 3986 §2.4): `%252e%252e` is the file name `%2e%2e`, not the parent directory.
        path = os.fsdecode(unquote_to_bytes(uri.removeprefix(self.prefix)))
        return path if self.means(path) else None

    def means(self, path: str) -> bool:
        return _is_plain(path) and self.globs.patterns.matches(path)


class ServedFile(msgspec.Struct, frozen=True, kw_only=True):
    """Reads the file at `path`. If `path` is empty, the URI variable `variable` contains the path."""

    files: ServedFiles
    path: str = ""
    variable: str = ""
    digest: str | None = None
    """The hexadecimal SHA-256 digest of the file at load. If set, a file that has changed since then is rejected."""

    def match(self, uri: str) -> dict[str, str] | None:
        path = self.files.path_of(uri)
        return None if path is None else {self.variable: path}

    def explain(self, invocation: Invocation) -> Explanation:
        globs, path = self.files.globs, self._path_for(invocation)
        facts = {"path": globs.location(path), "root": globs.root, "max_size": self.files.reader.max_size}
        return Explanation(does=_READS, facts=facts)

    async def execute(self, invocation: Invocation) -> Outcome:
        path = self._path_for(invocation)
        data = await self.files.reader.read_matched(self.files.globs, path, invocation)
        if data is None:
            raise ResourceNotFoundError(self.files.uri_of(path))
        # Check the digest of the returned bytes, because the file can change between two reads.
        if self.digest is not None and hashlib.sha256(data).hexdigest() != self.digest:
            raise ExecutionError("The file has changed since it was reviewed")
        return RawOutput(data=data, media_type=media_type_of(path))

    def _path_for(self, invocation: Invocation) -> str:
        path = self.path or str(invocation.arguments[self.variable])
        if not self.files.means(path):
            raise ResourceNotFoundError(self.files.uri_of(path))
        return path


def _is_plain(path: str) -> bool:
    return not ("\0" in path or "\\" in path) and all(name not in {"", ".", ".."} for name in path.split("/"))
