"""Content blocks of the configuration, compiled at load and rendered for each call.

Files are read for each call, so a changed file needs no reload. Blocks have the wire format of 2026-07-28.
"""

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from gateway.config.machine_facts import is_file
from gateway.config.models.content import Block, Embedded, Link, Media
from gateway.config.models.definition_keys import ContentAnnotations
from gateway.errors import ExecutionError, ResourceError
from gateway.executors.files.executor import FileReader
from gateway.executors.invocation import Blocks, Explanation, Invocation, Outcome
from gateway.executors.output.media_types import OCTETS
from gateway.json_types import JsonObject
from gateway.language.files.media_types import media_type_of
from gateway.language.scope import Scope
from gateway.language.templates.caller import use_all_facts
from gateway.language.templates.templating import TextTemplate, compile_text
from gateway.language.uris.templates import UriTemplate, compile_uri_template

ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""The scheme of an absolute URI (RFC 3986 §3.1)."""


class BlocksTemplate(msgspec.Struct, frozen=True):
    parts: tuple["_Part", ...]

    @property
    def is_immediate(self) -> bool:
        return all(isinstance(part, _TextPart) and part.template.only_copies for part in self.parts)

    async def render(self, invocation: Invocation) -> tuple[JsonObject, ...]:
        """Render the blocks with the arguments, files and resources.

        Raises:
            ExecutionError: a file is missing, too large, or cannot be read.
            ResourceError: an embedded resource cannot be read, or the caller cannot see it.
        """
        blocks: list[JsonObject] = []
        for part in self.parts:
            if isinstance(part, _WRITTEN):
                blocks.append(part.fill(invocation.variables))
            else:
                blocks += await part.render(invocation)
        return tuple(blocks)

    def reads(self, invocation: Invocation) -> list[str]:
        return [source for part in self.parts if (source := _read_by(part, invocation)) is not None]


class ContentExecutor(msgspec.Struct, frozen=True, kw_only=True):
    blocks: BlocksTemplate
    is_error: bool

    def explain(self, invocation: Invocation) -> Explanation:
        kind = "a fixed error" if self.is_error else "fixed content"
        facts = {"blocks": len(self.blocks.parts), "reads": self.blocks.reads(invocation)}
        return Explanation(does=f"returns {kind}", facts=facts)

    async def execute(self, invocation: Invocation) -> Outcome:
        try:
            return Blocks(content=await self.blocks.render(invocation), is_error=self.is_error)
        except ResourceError as error:
            raise ExecutionError(error.explanation) from error


def compile_blocks(blocks: Sequence[Block], *, scope: Scope, reader: FileReader) -> BlocksTemplate:
    return BlocksTemplate(
        tuple(_compile_block(block, scope=scope.at(index), reader=reader) for index, block in enumerate(blocks))
    )


def _compile_block(block: Block, *, scope: Scope, reader: FileReader) -> "_Part":
    extra = {"annotations": content_annotations(block.annotations)} if block.annotations else {}
    scope = scope.at(block.kind)
    if block.text is not None:
        return _TextPart(compile_text(block.text, scope), extra)
    if block.resource is not None:
        return _compile_resource(block.resource, extra, scope=scope, reader=reader)
    if block.link is not None:
        return _LinkPart(_compile_uri(block.link.uri, scope=scope.at("uri")), _link_fields(block.link) | extra)
    media = block.image or block.audio
    assert media is not None  # noqa: S101 - the model requires one of the five
    return _compile_media(media, block.kind, extra, scope=scope, reader=reader)


def content_annotations(annotations: ContentAnnotations) -> JsonObject:
    named = {
        "audience": annotations.audience,
        "priority": annotations.priority,
        "lastModified": annotations.last_modified,
    }
    return {name: value for name, value in named.items() if value is not None}


class _TextPart(msgspec.Struct, frozen=True):
    template: TextTemplate
    extra: JsonObject

    def fill(self, arguments: JsonObject) -> JsonObject:
        block = {"type": "text", "text": self.template.render(arguments)}
        return {**block, **self.extra} if self.extra else block


class _LinkPart(msgspec.Struct, frozen=True):
    uri: UriTemplate
    fields: JsonObject

    def fill(self, arguments: JsonObject) -> JsonObject:
        return {"type": "resource_link", "uri": self.uri.expand(arguments), **self.fields}


def _link_fields(link: Link) -> dict[str, object]:
    named = {
        "name": link.name,
        "title": link.title,
        "description": link.description,
        "mimeType": link.mime_type,
        "size": link.size,
    }
    return {name: value for name, value in named.items() if value is not None}


class _Inline(msgspec.Struct, frozen=True):
    data: str

    async def base64(self, invocation: Invocation) -> str:  # noqa: ARG002 - of the interface
        return self.data

    async def contents(self, invocation: Invocation) -> JsonObject:  # noqa: ARG002 - of the interface
        return {"blob": self.data}


class _File(msgspec.Struct, frozen=True):
    path: Path
    reader: FileReader

    async def base64(self, invocation: Invocation) -> str:
        return _in_base64(await self._read(invocation))

    async def contents(self, invocation: Invocation) -> JsonObject:
        data = await self._read(invocation)
        try:
            # MCP 2025-11-25 schema.ts, TextResourceContents: `text` must only be set for text.
            return {"text": data.decode()}
        except UnicodeDecodeError:
            return {"blob": _in_base64(data)}

    async def _read(self, invocation: Invocation) -> bytes:
        data = await self.reader.read(str(self.path), invocation)
        if data is None:
            raise ExecutionError(f"The file {self.path.name} no longer exists")
        return data


class _Text(msgspec.Struct, frozen=True):
    template: TextTemplate

    async def contents(self, invocation: Invocation) -> JsonObject:
        return {"text": self.template.render(invocation.variables)}


def _in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


class _MediaPart(msgspec.Struct, frozen=True):
    kind: str
    data: _Inline | _File
    mime_type: str
    extra: JsonObject

    async def render(self, invocation: Invocation) -> Sequence[JsonObject]:
        data = await self.data.base64(invocation)
        return [{"type": self.kind, "data": data, "mimeType": self.mime_type, **self.extra}]


def _compile_media(media: Media, kind: str, extra: JsonObject, *, scope: Scope, reader: FileReader) -> "_Part":
    data = _compile_data(media, scope=scope, reader=reader)
    mime_type = media.mime_type or (media_type_of(media.file) if media.file else None)
    if mime_type is None:
        scope.problems.error(f"requires `mime_type`, such as {_EXAMPLES[kind]}")
    elif not mime_type.startswith(f"{kind}/"):
        scope.problems.error(f"{mime_type} is not a type of {kind}. Set `mime_type`, such as {_EXAMPLES[kind]}")
    return _MediaPart(kind, data, mime_type or OCTETS, extra)


_EXAMPLES: Final = {"image": "image/png", "audio": "audio/wav"}


class _EmbeddedPart(msgspec.Struct, frozen=True):
    uri: UriTemplate
    source: _Inline | _File | _Text
    mime_type: str | None
    extra: JsonObject

    async def render(self, invocation: Invocation) -> Sequence[JsonObject]:
        resource = {"uri": self.uri.expand(invocation.variables), **await self.source.contents(invocation)}
        if self.mime_type is not None:
            resource["mimeType"] = self.mime_type
        return [{"type": "resource", "resource": resource, **self.extra}]


class _ReferencePart(msgspec.Struct, frozen=True):
    """A resource of this server, as the caller would read it. Each of its contents becomes a block."""

    uri: UriTemplate
    extra: JsonObject

    async def render(self, invocation: Invocation) -> Sequence[JsonObject]:
        contents = await invocation.context.read_resource(self.uri.expand(invocation.variables))
        return [{"type": "resource", "resource": resource, **self.extra} for resource in contents]


_WRITTEN: Final = (_TextPart, _LinkPart)
"""Blocks that depend only on the arguments."""
_Part = _TextPart | _LinkPart | _MediaPart | _EmbeddedPart | _ReferencePart


def _read_by(part: _Part, invocation: Invocation) -> str | None:
    match part:
        case _ReferencePart(uri=uri):
            return uri.expand(invocation.variables)
        case _MediaPart(data=_File(path=path)) | _EmbeddedPart(source=_File(path=path)):
            return str(path)
    return None


def _compile_resource(embedded: Embedded, extra: JsonObject, *, scope: Scope, reader: FileReader) -> "_Part":
    uri = _compile_uri(embedded.uri, scope=scope.at("uri"))
    if embedded.is_reference:
        if embedded.mime_type is not None:
            scope.at("mime_type").problems.error(
                "requires `text`, `file` or `base64`. A resource that is read has its own type"
            )
        use_all_facts(scope)  # the resource can read any of them
        return _ReferencePart(uri, extra)
    mime_type = embedded.mime_type or (media_type_of(embedded.file) if embedded.file else None)
    return _EmbeddedPart(uri, _compile_contents(embedded, scope=scope, reader=reader), mime_type, extra)


def _compile_uri(source: str, *, scope: Scope) -> UriTemplate:
    # After a leading `{{`, an argument can contain the scheme.
    if not (source.startswith("{") or ABSOLUTE.match(source)):
        scope.problems.error(f"`{source}` is not a URI. A URI starts with a scheme, as in docs:///guide.md")
    return compile_uri_template(source, scope)


def _compile_contents(embedded: Embedded, *, scope: Scope, reader: FileReader) -> _Inline | _File | _Text:
    if embedded.text is not None:
        return _Text(compile_text(embedded.text, scope.at("text")))
    return _compile_data(embedded, scope=scope, reader=reader)


def _compile_data(given: Media | Embedded, *, scope: Scope, reader: FileReader) -> _Inline | _File:
    if given.file is not None:
        return _File(_existing(given.file, scope=scope.at("file")), reader)
    return _Inline(_in_base64(decoded_base64(given.base64 or "", scope=scope.at("base64"))))


def _existing(file: str, *, scope: Scope) -> Path:
    path = scope.problems.directory / file
    if not is_file(path):
        scope.problems.error(f"the file `{file}` does not exist")
    return path


def decoded_base64(text: str, *, scope: Scope) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        scope.problems.error("is not valid base64")
        return b""
