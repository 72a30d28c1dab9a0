"""Files sent in a request: from a literal path, or from the caller (`type: file`)."""

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gateway.config.machine_facts import is_file
from gateway.errors import ExecutionError
from gateway.executors.files.regular_files import NotServedError, opened_regular
from gateway.json_types import JsonObject
from gateway.language.files.file_argument import FileArgument
from gateway.language.files.file_inputs import is_file_input
from gateway.language.files.media_types import media_type_of
from gateway.language.scope import Scope
from gateway.language.templates.render_state import UNDEFINED
from gateway.language.templates.templating import TextTemplate, compile_text, has_expressions
from gateway.threads import DaemonThreadPool

# RFC 6838 §4.2: at most 127 characters each for type and subtype.
_MEDIA_TYPE: Final = re.compile(
    r"""[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(?:[ ]?;[ ]?[\w!#$&^.+-]+=(?:[\w!#$&^.+/-]+|"[^"\\\x00-\x1f\x7f]*"))*""",
    re.ASCII,
)
_MAX_NAME: Final = 255
"""Characters of a file name. File systems allow no more."""
_READ_SECONDS: Final = 60.0
"""The limit for reading one chunk, because a disk can hang."""


class DiskFile(msgspec.Struct, frozen=True, kw_only=True):
    """A local file, with the size and modification time found when the request was built."""

    path: str
    size: int
    modified_ns: int
    threads: DaemonThreadPool

    @property
    def identity(self) -> str:
        """Identifies the content without reading it."""
        return repr((self.path, self.size, self.modified_ns))

    async def read(self, offset: int, size: int) -> bytes:
        deadline = asyncio.get_running_loop().time() + _READ_SECONDS
        try:
            return await self.threads.run(self._read, offset, size, deadline=deadline)
        except TimeoutError as error:
            raise ExecutionError(f"reading {self.path} took too long") from error

    def _read(self, offset: int, size: int) -> bytes:
        """Read a chunk. Opens the file each time, because the thread can outlive the call.

        Raises:
            ExecutionError: the file cannot be read or has changed.
        """
        try:
            with opened_regular(self.path) as descriptor:
                found = os.fstat(descriptor)
                chunk = os.pread(descriptor, size, offset)
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if not chunk or (found.st_size, found.st_mtime_ns) != (self.size, self.modified_ns):
            raise ExecutionError(f"{self.path} has changed while it was sent")
        return chunk


class SentFile(msgspec.Struct, frozen=True, kw_only=True):
    data: bytes | DiskFile
    media_type: str | None
    name: str | None


class _LiteralPath(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    threads: DaemonThreadPool

    def files(self, arguments: JsonObject) -> Iterator[SentFile]:  # noqa: ARG002 - of the interface
        file = _disk_file(self.path, threads=self.threads)
        yield SentFile(data=file, media_type=media_type_of(self.path), name=base_name(self.path))


def _disk_file(path: str, *, threads: DaemonThreadPool) -> DiskFile:
    """Raises `ExecutionError` if the file cannot be read."""
    try:
        with opened_regular(path) as descriptor:
            found = os.fstat(descriptor)
    except OSError as error:
        raise _unreadable(path, error) from error
    return DiskFile(path=path, size=found.st_size, modified_ns=found.st_mtime_ns, threads=threads)


def _unreadable(path: str, error: OSError) -> ExecutionError:
    why = "not a regular file" if isinstance(error, NotServedError) else error.strerror
    return ExecutionError(f"cannot read {path}: {why}")


class _GivenFiles(msgspec.Struct, frozen=True, kw_only=True):
    template: TextTemplate

    def files(self, arguments: JsonObject) -> Iterator[SentFile]:
        value = self.template.value(arguments)
        for file in value if isinstance(value, list) else [value]:
            if isinstance(file, FileArgument):
                yield sent_file(file)
            elif file is not None and file is not UNDEFINED:
                raise ExecutionError(f"{self.template.place}: the value is not a file of an input with `type: file`")


FileSource = _LiteralPath | _GivenFiles
"""`files` raises `ExecutionError` if a value is not a file or cannot be read."""


def sent_file(file: FileArgument) -> SentFile:
    return SentFile(data=file.data, media_type=file.media_type, name=file.name)


def compile_source(written: str, scope: Scope, *, threads: DaemonThreadPool) -> FileSource:
    """Compile a literal path, or an expression whose value is a caller's file. A caller's value is never a path."""
    if not has_expressions(written):
        path = str(scope.problems.directory / written)
        if not is_file(path):
            scope.problems.warning(f"the file `{written}` does not exist")
        return _LiteralPath(path=path, threads=threads)
    template = compile_text(written, scope.taking_files())
    schema = scope.inputs.schemas.get(template.input or "")
    if template.single is None or (schema is not None and not _may_be_files(schema)):
        scope.problems.error("expected a literal path, or one expression for an input of `type: file`")
    return _GivenFiles(template=template)


def _may_be_files(schema: JsonObject) -> bool:
    items = schema.get("items", {})
    if schema.get("type") == "array":
        return not isinstance(items, Mapping) or "type" not in items or is_file_input(items)
    return "type" not in schema or is_file_input(schema)


def compile_media_type(written: str | None, scope: Scope) -> TextTemplate | None:
    """Compile the `type` of a file. Reports an invalid literal."""
    if written is None:
        return None
    template = compile_text(written, scope)
    if template.literal is not None:
        try:
            checked_media_type(template.literal, place="")
        except ExecutionError:
            scope.problems.error("expected a media type such as image/png")
    return template


def rendered_media_type(template: TextTemplate | None, arguments: JsonObject) -> str | None:
    """Render a `type`. Returns None if it is absent or empty.

    Raises:
        ExecutionError: the value is not a media type.
    """
    given = None if template is None else template.render_element(arguments)
    return checked_media_type(given, place=template.place) if given and template is not None else None


def base_name(name: str) -> str:
    """Return a file name without directories of any system."""
    # RFC 7578 §4.2: paths must not be sent. The end is kept because it contains the suffix.
    return re.split(r"[/\\]", name)[-1][-_MAX_NAME:] or "file"


def checked_media_type(media_type: str, *, place: str) -> str:
    """Raises `ExecutionError` if the text is not a media type."""
    if not _MEDIA_TYPE.fullmatch(media_type):
        raise ExecutionError(f"{place}: {media_type[:60]!r} is not a media type")
    return media_type
