"""Compiles the content blocks of the configuration at load, and renders the blocks for each call.

Files are read for each call, so a changed file needs no reload. Rendered blocks have the wire format of MCP 2026-07-28.
"""

import base64
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from gateway.config.machine_facts import is_file
from gateway.config.models.content import Block, Embedded, Media
from gateway.config.models.definition_keys import ContentAnnotations
from gateway.errors import ExecutionError, ResourceError
from gateway.executors.files.executor import FileReader
from gateway.executors.invocation import Blocks, Executor, Explanation, FunctionExecutor, Invocation, Outcome
from gateway.executors.output.media_types import OCTETS
from gateway.json_types import JsonObject
from gateway.language.files.media_types import media_type_of
from gateway.language.scope import Scope
from gateway.language.templates.caller import use_all_facts
from gateway.language.templates.templating import compile_text
from gateway.language.uris.templates import Expand, compile_uri_template

ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""Matches the scheme at the start of an absolute URI (RFC 3986 §3.1)."""


_Part = tuple[Callable[[Invocation], Awaitable[Sequence[JsonObject]]], Callable[[Invocation], str] | None]
"""A function that renders blocks, and a function that returns the path or URI to read (None if nothing is read)."""


class BlocksTemplate(msgspec.Struct, frozen=True):
    parts: tuple[_Part, ...]

    async def render(self, invocation: Invocation) -> tuple[JsonObject, ...]:
        """Render all blocks for a call, and read the files and resources that the blocks embed.

        Raises:
            ExecutionError: a file is missing, too large, or cannot be read.
            ResourceError: an embedded resource cannot be read, or the caller cannot see it.
        """
        blocks: list[JsonObject] = []
        for render, _ in self.parts:
            blocks += await render(invocation)
        return tuple(blocks)

    def reads(self, invocation: Invocation) -> list[str]:
        return [reads(invocation) for _, reads in self.parts if reads is not None]


def content_executor(blocks: BlocksTemplate, *, is_error: bool) -> Executor:
    def explain(invocation: Invocation) -> Explanation:
        kind = "a fixed error" if is_error else "fixed content"
        facts = {"blocks": len(blocks.parts), "reads": blocks.reads(invocation)}
        return Explanation(does=f"returns {kind}", facts=facts)

    async def execute(invocation: Invocation) -> Outcome:
        try:
            return Blocks(content=await blocks.render(invocation), is_error=is_error)
        except ResourceError as error:
            raise ExecutionError(error.explanation) from error

    return FunctionExecutor(explain, execute)


def compile_blocks(blocks: Sequence[Block], *, scope: Scope, reader: FileReader) -> BlocksTemplate:
    return BlocksTemplate(
        tuple(_compile_block(block, scope=scope.at(index), reader=reader) for index, block in enumerate(blocks))
    )


def _compile_block(block: Block, *, scope: Scope, reader: FileReader) -> _Part:
    extra = {"annotations": content_annotations(block.annotations)} if block.annotations else {}
    scope = scope.at(block.kind)
    if block.text is not None:
        text = compile_text(block.text, scope)
        return _filled(lambda variables: {"type": "text", "text": text.render(variables), **extra})
    if block.resource is not None:
        return _compile_resource(block.resource, extra, scope=scope, reader=reader)
    if block.link is not None:
        link, uri = block.link, _compile_uri(block.link.uri, scope=scope.at("uri"))
        texts = _present(name=link.name, title=link.title, description=link.description)
        fields = {**texts, **_present(mimeType=link.mime_type, size=link.size), **extra}
        return _filled(lambda variables: {"type": "resource_link", "uri": uri(variables), **fields})
    media = block.image or block.audio
    assert media is not None  # noqa: S101 - the model requires exactly one kind of content
    return _compile_media(media, block.kind, extra, scope=scope, reader=reader)


def content_annotations(annotations: ContentAnnotations) -> JsonObject:
    return _present(
        audience=annotations.audience, priority=annotations.priority, lastModified=annotations.last_modified
    )


def _present(**members: object) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not None}


def _filled(fill: Callable[[JsonObject], JsonObject]) -> _Part:
    async def render(invocation: Invocation) -> Sequence[JsonObject]:
        return [fill(invocation.variables)]

    return render, None


def _in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _compile_media(media: Media, kind: str, extra: JsonObject, *, scope: Scope, reader: FileReader) -> _Part:
    read, path = _compile_data(media, scope=scope, reader=reader)
    mime_type = media.mime_type or (media_type_of(media.file) if media.file else None)
    if mime_type is None:
        scope.problems.error(f"requires `mime_type`, such as {_EXAMPLES[kind]}")
    elif not mime_type.startswith(f"{kind}/"):
        scope.problems.error(f"{mime_type} is not a type of {kind}. Set `mime_type`, such as {_EXAMPLES[kind]}")

    async def render(invocation: Invocation) -> Sequence[JsonObject]:
        data = _in_base64(await read(invocation))
        return [{"type": kind, "data": data, "mimeType": mime_type or OCTETS, **extra}]

    return render, path


_EXAMPLES: Final = {"image": "image/png", "audio": "audio/wav"}


def _compile_resource(embedded: Embedded, extra: JsonObject, *, scope: Scope, reader: FileReader) -> _Part:
    uri = _compile_uri(embedded.uri, scope=scope.at("uri"))
    if embedded.is_reference:
        if embedded.mime_type is not None:
            scope.at("mime_type").problems.error(
                "requires `text`, `file` or `base64`. Otherwise the type comes from the resource"
            )
        return _compile_reference(uri, extra, scope)
    mime_type = embedded.mime_type or (media_type_of(embedded.file) if embedded.file else None)
    typed = {} if mime_type is None else {"mimeType": mime_type}

    def block(arguments: JsonObject, contents: JsonObject) -> JsonObject:
        return {"type": "resource", "resource": {"uri": uri(arguments), **contents, **typed}, **extra}

    if embedded.text is not None:
        text = compile_text(embedded.text, scope.at("text"))
        return _filled(lambda variables: block(variables, {"text": text.render(variables)}))
    read, path = _compile_data(embedded, scope=scope, reader=reader)

    async def render(invocation: Invocation) -> Sequence[JsonObject]:
        data = await read(invocation)
        try:
            # MCP 2025-11-25 schema.ts, TextResourceContents: `text` must only be set if the data is text.
            contents = {"text": data.decode()} if path is not None else {"blob": _in_base64(data)}
        except UnicodeDecodeError:
            contents = {"blob": _in_base64(data)}
        return [block(invocation.variables, contents)]

    return render, path


def _compile_reference(uri: Expand, extra: JsonObject, scope: Scope) -> _Part:
    use_all_facts(scope)  # the templates of the resource can read any fact about the caller

    async def render(invocation: Invocation) -> Sequence[JsonObject]:
        contents = await invocation.context.read_resource(uri(invocation.variables))
        return [{"type": "resource", "resource": resource, **extra} for resource in contents]

    return render, lambda invocation: uri(invocation.variables)


def _compile_uri(source: str, *, scope: Scope) -> Expand:
    # In a URI that starts with an expression, an argument can provide the scheme.
    if not (source.startswith("{") or ABSOLUTE.match(source)):
        scope.problems.error(f"`{source}` is not a URI. A URI starts with a scheme, as in docs:///guide.md")
    return compile_uri_template(source, scope)


def _compile_data(
    given: Media | Embedded, *, scope: Scope, reader: FileReader
) -> tuple[Callable[[Invocation], Awaitable[bytes]], Callable[[Invocation], str] | None]:
    if given.file is not None:
        problems = scope.at("file").problems
        path = problems.directory / given.file
        if not is_file(path):
            problems.error(f"the file `{given.file}` does not exist")

        async def read(invocation: Invocation) -> bytes:
            found = await reader.read(str(path), invocation)
            if found is None:
                raise ExecutionError(f"The file {path.name} no longer exists")
            return found

        return read, lambda _: str(path)
    data = decoded_base64(given.base64 or "", scope=scope.at("base64"))

    async def written(_invocation: Invocation) -> bytes:
        return data

    return written, None


def decoded_base64(text: str, *, scope: Scope) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        scope.problems.error("is not valid base64")
        return b""
