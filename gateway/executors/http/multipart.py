"""Builds multipart/form-data bodies (RFC 7578) in the same format as browsers (HTML, "Multipart form data").

Threats: a name, file name or media type from a caller that adds headers or parts (escaped or rejected), a file that
contains the boundary (prevented by a digest of all parts), and a file name with a path (removed, RFC 7578 §4.2).
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gateway.config.machine_facts import is_file
from gateway.config.models.http_bodies import MultipartField, Part
from gateway.errors import ExecutionError
from gateway.executors.files.regular_files import NotServedError, TooLargeError, read_regular
from gateway.executors.output.media_types import JSON, OCTETS
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.language.files.file_argument import FileArgument, json_with_files
from gateway.language.files.file_inputs import is_file_input
from gateway.language.files.media_types import media_type_of, suffix_of
from gateway.language.scope import Scope
from gateway.language.templates.render_state import json_of, text_of
from gateway.language.templates.templating import compile_json, compile_text, has_expressions

# RFC 6838 §4.2: at most 127 characters each for type and subtype.
_MEDIA_TYPE: Final = re.compile(
    r"""[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(?:[ ]?;[ ]?[\w!#$&^.+-]+=(?:[\w!#$&^.+/-]+|"[^"\\\x00-\x1f\x7f]*"))*""",
    re.ASCII,
)
_MAX_NAME: Final = 255
"""The maximum length of a file name in characters. File systems do not allow longer names."""
MAX_FILE: Final = 64 * 2**20
"""The maximum size in bytes of a file that the configuration names."""


Files = Callable[[JsonObject], Iterator[FileArgument]]
"""Yields the files for a call's arguments. Raises `ExecutionError` if a value is not a file or cannot be read."""


def compile_files(written: str, scope: Scope) -> Files:
    """Compile a literal path, or an expression that selects files from the arguments.

    The value of an expression is never used as a path.
    """
    return _compile_given(written, scope) if has_expressions(written) else _compile_path(written, scope)


def _compile_path(written: str, scope: Scope) -> Files:
    path = str(scope.problems.directory / written)
    if not is_file(path):
        scope.problems.warning(f"the file `{written}` does not exist")

    def files(_arguments: JsonObject) -> Iterator[FileArgument]:
        try:
            data = read_regular(path, max_size=MAX_FILE)
        except NotServedError as error:
            raise ExecutionError(f"cannot read {path}: not a regular file") from error
        except TooLargeError as error:
            raise ExecutionError(f"cannot read {path}: it is larger than {MAX_FILE // 2**20} MiB") from error
        except OSError as error:
            raise ExecutionError(f"cannot read {path}: {error.strerror}") from error
        yield FileArgument(data, media_type=media_type_of(path), name=base_name(path))

    return files


def _compile_given(written: str, scope: Scope) -> Files:
    template = compile_text(written, scope.taking_files())
    schema = scope.inputs.schemas.get(template.input or "")
    if template.single is None or (schema is not None and not _may_be_files(schema)):
        scope.problems.error("expected a literal path, or one expression for an input of `type: file`")

    def files(arguments: JsonObject) -> Iterator[FileArgument]:
        value = template.value(arguments)
        for file in value if isinstance(value, list) else [value]:
            if isinstance(file, FileArgument):
                yield file
            elif file is not None and file is not ABSENT:
                raise ExecutionError(f"{template.place}: the value is not a file. Use an input with `type: file`")

    return files


def _may_be_files(schema: JsonObject) -> bool:
    items = schema.get("items", {})
    if schema.get("type") == "array":
        return not isinstance(items, Mapping) or "type" not in items or is_file_input(items)
    return "type" not in schema or is_file_input(schema)


def compile_media_type(written: str | None, scope: Scope) -> Callable[[JsonObject], str | None]:
    """Compile a media type. The returned function raises `ExecutionError` if a value is not a media type."""
    if written is None:
        return lambda _: None
    template = compile_text(written, scope)
    if template.literal is not None and not _MEDIA_TYPE.fullmatch(template.literal):
        scope.problems.error("expected a media type such as image/png")

    def media_type(arguments: JsonObject) -> str | None:
        given = template.render_element(arguments)
        if given and not _MEDIA_TYPE.fullmatch(given):
            raise ExecutionError(f"{template.place}: {given[:60]!r} is not a media type")
        return given or None

    return media_type


def base_name(name: str) -> str:
    """Return the last component of a POSIX or Windows path, with at most `_MAX_NAME` characters."""
    # RFC 7578 §4.2: paths must not be sent. A long name loses its beginning, because the end contains the suffix.
    return re.split(r"[/\\]", name)[-1][-_MAX_NAME:] or "file"


_ESCAPED: Final = re.compile(r'["\x00-\x1f\x7f]')


class PartContent(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    data: bytes
    media_type: str | None = None
    file_name: str | None = None

    @property
    def description(self) -> Json:
        if self.file_name is None:
            return {"field": self.field, "type": self.media_type, "text": self.data.decode(errors="replace")}
        return {"field": self.field, "name": self.file_name, "type": self.media_type, "size": len(self.data)}


def multipart_body(parts: Sequence[PartContent]) -> tuple[bytes, str, Json]:
    """Return the body, its media type, and a description of each part without the contents of files."""
    # Equal parts get equal boundaries, so equal requests share a cache key. A part cannot contain its own digest.
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr((_head(part, ""), hashlib.sha256(part.data).digest())).encode())
    boundary = f"mcp-gateway-{digest.hexdigest()[:32]}"
    pieces = [piece for part in parts for piece in (_head(part, boundary), part.data, b"\r\n")]
    described = [{key: value for key, value in part.description.items() if value is not None} for part in parts]
    body = b"".join([*pieces, f"--{boundary}--\r\n".encode()])
    return body, f"multipart/form-data; boundary={boundary}", described


def _head(part: PartContent, boundary: str) -> bytes:
    disposition = f'form-data; name="{_quoted(part.field)}"'
    if part.file_name is not None:
        # RFC 7578 §4.2: no `filename*`. Names are sent as UTF-8.
        disposition += f'; filename="{_quoted(base_name(part.file_name))}"'
    # RFC 7578 §4.7: no Content-Transfer-Encoding.
    lines = [f"--{boundary}", f"Content-Disposition: {disposition}"]
    if part.media_type is not None:
        lines.append(f"Content-Type: {part.media_type}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode(errors="replace")


def _quoted(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


PartTemplate = Callable[[JsonObject], Iterator[PartContent]]
"""Yields the parts for a call's arguments.

Raises:
    ExecutionError: a value is not allowed, or a file cannot be read.
"""


def _file_part(field: str, file: FileArgument, media_type: str | None = None, name: str | None = None) -> PartContent:
    media_type = media_type or file.media_type or OCTETS
    # Servers treat parts without a file name as text fields.
    file_name = name or file.name or f"{field}{suffix_of(media_type)}"
    return PartContent(field=field, data=file.data, media_type=media_type, file_name=file_name)


def compile_parts(written: Mapping[str, MultipartField], scope: Scope) -> Iterator[PartTemplate]:
    for name, value in written.items():
        if isinstance(value, list):
            for index, part in enumerate(value):
                yield _compile_part(name, part, scope.at(name, index))
        else:
            yield _compile_part(name, value, scope.at(name))


def _compile_part(field: str, written: str | Part, scope: Scope) -> PartTemplate:
    if isinstance(written, str):
        return _compile_value(field, written, scope)
    media_type = compile_media_type(written.type, scope.at("type"))
    named = compile_text(written.name or "", scope.at("name"))
    match written.kind:
        case "file":
            files = compile_files(written.file or "", scope.at("file"))
            return lambda arguments: (
                _file_part(field, file, media_type(arguments), named.render_element(arguments))
                for file in files(arguments)
            )
        case "text":
            text = compile_text(written.text or "", scope.at("text"))
            return lambda arguments: _contents(field, text.render_element(arguments), media_type(arguments))
        case _:
            template = compile_json(written.json_, scope.at("json").taking_files())
            return lambda arguments: _contents(
                field,
                None if (value := template(arguments)) is ABSENT else json_of(json_with_files(value)),
                media_type(arguments) or JSON,
                named.render_element(arguments) or None,
            )


def _contents(
    field: str, text: str | None, media_type: str | None = None, file_name: str | None = None
) -> Iterator[PartContent]:
    if text is not None:
        data = text.encode(errors="replace")
        yield PartContent(field=field, data=data, media_type=media_type, file_name=file_name)


def _compile_value(field: str, written: str, scope: Scope) -> PartTemplate:
    """Compile a part whose media type depends on the value: a file, JSON or text."""
    template = compile_text(written, scope.taking_files())

    def contents(arguments: JsonObject) -> Iterator[PartContent]:
        value = template.value(arguments)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, FileArgument):
                yield _file_part(field, item)
            elif isinstance(item, Mapping | list):
                yield from _contents(field, json_of(json_with_files(item)), JSON)
            elif item is not None and item is not ABSENT:
                yield from _contents(field, text_of(item))  # RFC 7578 §4.4: the default type is text/plain

    return contents
