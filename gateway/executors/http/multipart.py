"""Multipart/form-data bodies (RFC 7578), in the format of browsers (HTML, "Multipart form data").

Threats: a caller's name, file name or media type that adds headers or parts (escaped), a file that contains the
boundary (128 random bits), and a file name with a path (removed, RFC 7578 §4.2).
"""

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from gateway.config.models.http_bodies import MultipartField, Part
from gateway.executors.http.file_sources import (
    FileSource,
    SentFile,
    base_name,
    compile_media_type,
    compile_source,
    rendered_media_type,
    sent_file,
)
from gateway.executors.output.media_types import JSON, OCTETS
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.language.files.file_argument import FileArgument, json_with_files
from gateway.language.files.media_types import suffix_of
from gateway.language.scope import Scope
from gateway.language.templates.render_state import UNDEFINED, json_of, text_of
from gateway.language.templates.templating import JsonTemplate, TextTemplate, compile_json, compile_text
from gateway.net.streamed_body import Source, StreamedBody
from gateway.threads import DaemonThreadPool

_ESCAPED: Final = re.compile(r'["\x00-\x1f\x7f]')


class PartContent(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    data: bytes | Source
    media_type: str | None = None
    file_name: str | None = None

    @property
    def description(self) -> Json:
        size = len(self.data) if isinstance(self.data, bytes) else self.data.size
        if self.file_name is None and isinstance(self.data, bytes):
            return {"field": self.field, "type": self.media_type, "text": self.data.decode(errors="replace")}
        return {"field": self.field, "name": self.file_name, "type": self.media_type, "size": size}


def multipart_body(parts: Iterable[PartContent]) -> tuple[StreamedBody, str]:
    """Return the body and its media type."""
    # RFC 2046 §5.1.1: at most 70 characters.
    boundary = f"mcp-gateway-{secrets.token_hex(16)}"
    pieces: list[bytes | Source] = []
    described: list[Json] = []
    for part in parts:
        pieces += (_head(part, boundary), part.data, b"\r\n")
        described.append({key: value for key, value in part.description.items() if value is not None})
    pieces.append(f"--{boundary}--\r\n".encode())
    body = StreamedBody(pieces=tuple(pieces), description=described, boundary=boundary.encode())
    return body, f"multipart/form-data; boundary={boundary}"


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
    """Percent-encode `"` and control characters, as browsers do."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


class _ValuePart(msgspec.Struct, frozen=True, kw_only=True):
    """A part whose format depends on its value."""

    template: TextTemplate

    def contents(self, field: str, arguments: JsonObject) -> Iterator[PartContent]:
        value = self.template.value(arguments)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, FileArgument):
                yield _file_part(field, sent_file(item), media_type=None, name=None)
            elif isinstance(item, Mapping | list):
                yield PartContent(field=field, data=json_of(json_with_files(item)).encode(), media_type=JSON)
            elif item is not None and item is not UNDEFINED:
                # RFC 7578 §4.4: the default type is text/plain.
                yield PartContent(field=field, data=text_of(item).encode(errors="replace"))


class _TextPart(msgspec.Struct, frozen=True, kw_only=True):
    template: TextTemplate
    media_type: TextTemplate | None

    def contents(self, field: str, arguments: JsonObject) -> Iterator[PartContent]:
        text = self.template.render_element(arguments)
        if text is not None:
            media_type = rendered_media_type(self.media_type, arguments)
            yield PartContent(field=field, data=text.encode(errors="replace"), media_type=media_type)


class _JsonPart(msgspec.Struct, frozen=True, kw_only=True):
    template: JsonTemplate
    media_type: TextTemplate | None
    name: TextTemplate | None

    def contents(self, field: str, arguments: JsonObject) -> Iterator[PartContent]:
        value = self.template.render(arguments)
        if value is not ABSENT:
            yield PartContent(
                field=field,
                data=json_of(json_with_files(value)).encode(),
                media_type=rendered_media_type(self.media_type, arguments) or JSON,
                file_name=_name(self.name, arguments),
            )


class _FilePart(msgspec.Struct, frozen=True, kw_only=True):
    source: FileSource
    media_type: TextTemplate | None
    name: TextTemplate | None

    def contents(self, field: str, arguments: JsonObject) -> Iterator[PartContent]:
        media_type, name = rendered_media_type(self.media_type, arguments), _name(self.name, arguments)
        for file in self.source.files(arguments):
            yield _file_part(field, file, media_type=media_type, name=name)


PartTemplate = _ValuePart | _TextPart | _JsonPart | _FilePart
"""A compiled part. `contents` raises `ExecutionError` if a value is not allowed or a file cannot be read."""


def _name(template: TextTemplate | None, arguments: JsonObject) -> str | None:
    return None if template is None else template.render_element(arguments)


def _file_part(field: str, file: SentFile, *, media_type: str | None, name: str | None) -> PartContent:
    """Return a part with a file name, which makes servers treat it as a file."""
    media_type = media_type or file.media_type or OCTETS
    file_name = name or file.name or f"{field}{suffix_of(media_type)}"
    return PartContent(field=field, data=file.data, media_type=media_type, file_name=file_name)


def compile_parts(
    written: Mapping[str, MultipartField], scope: Scope, *, threads: DaemonThreadPool
) -> Iterator[tuple[str, PartTemplate]]:
    for name, value in written.items():
        if isinstance(value, list):
            for index, part in enumerate(value):
                yield name, _compile_part(part, scope.at(name, index), threads=threads)
        else:
            yield name, _compile_part(value, scope.at(name), threads=threads)


def _compile_part(written: str | Part, scope: Scope, *, threads: DaemonThreadPool) -> PartTemplate:
    if isinstance(written, str):
        return _ValuePart(template=compile_text(written, scope.taking_files()))
    media_type = compile_media_type(written.type, scope.at("type"))
    name = None if written.name is None else compile_text(written.name, scope.at("name"))
    match written.kind:
        case "file":
            source = compile_source(written.file or "", scope.at("file"), threads=threads)
            return _FilePart(source=source, media_type=media_type, name=name)
        case "text":
            return _TextPart(template=compile_text(written.text or "", scope.at("text")), media_type=media_type)
        case _:
            template = compile_json(written.json_, scope.at("json").taking_files())
            return _JsonPart(template=template, media_type=media_type, name=name)
