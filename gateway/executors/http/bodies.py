"""Request bodies, compiled from `json`, `form`, `multipart` and `body`."""

from collections.abc import Collection, Container, Iterator, Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec

from gateway.config.models.backends import Http
from gateway.config.models.http_bodies import FileBody
from gateway.errors import ExecutionError
from gateway.executors.http.multipart import (
    FileSource,
    PartTemplate,
    compile_media_type,
    compile_parts,
    compile_source,
    multipart_body,
    rendered_media_type,
)
from gateway.executors.http.styles import Style, style_of
from gateway.executors.output.media_types import JSON, OCTETS
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.language.files.file_argument import FileArgument, json_with_files
from gateway.language.scope import Scope
from gateway.language.templates.render_state import UNDEFINED, json_of, text_of
from gateway.language.templates.templating import JsonTemplate, TextTemplate, compile_json, compile_text
from gateway.net.streamed_body import Source, StreamedBody
from gateway.threads import DaemonThreadPool

_FORM: Final = "application/x-www-form-urlencoded"
_TEXT: Final = "text/plain; charset=utf-8"
MAX_FORM_BYTES: Final = 16 * 2**20
"""Nested fields repeat the names of outer ones, so a form can be larger than its arguments."""


Body = tuple[bytes | StreamedBody, str]


class _JsonBody(msgspec.Struct, frozen=True, kw_only=True):
    template: JsonTemplate
    has_files: bool
    is_optional: bool
    declared: Collection[str] | None
    """The declared inputs, if other arguments also become members of the body."""

    def render(self, arguments: JsonObject) -> Body | None:
        value = self.template.render(arguments)
        value = value if self.declared is None else {**_undeclared(arguments, self.declared), **value}
        if value is ABSENT or (self.is_optional and value == {}):
            return None
        return json_of(json_with_files(value) if self.has_files else value).encode(), JSON


class _FormBody(msgspec.Struct, frozen=True, kw_only=True):
    template: JsonTemplate
    is_optional: bool
    styles: Mapping[str, Style]
    declared: Collection[str] | None

    def render(self, arguments: JsonObject) -> Body | None:
        fields = self.template.render(arguments)
        if self.declared is not None:
            # With a bracket, a name could overwrite a member of a fixed field.
            others = {_plain(name): value for name, value in _undeclared(arguments, self.declared).items()}
            fields = {**others, **fields}
        data = _encoded_form(fields, self.styles)
        return None if self.is_optional and not data else (data, _FORM)


def _undeclared(arguments: JsonObject, declared: Collection[str]) -> JsonObject:
    return {name: value for name, value in arguments.items() if name not in declared}


def _encoded_form(fields: JsonObject, styles: Mapping[str, Style]) -> bytes:
    """Encode fields with nested values as a form.

    Nesting uses brackets (`a[b]=1`), as in PHP, Rack and `qs`. A list of scalars repeats its field, as HTML forms do.
    Other lists have numbered items.

    Raises:
        ExecutionError: a name contains a bracket, or the form is too long.
    """
    pairs, room = [], MAX_FORM_BYTES
    taken = {name.lower() for name in fields}
    for name, member in fields.items():
        for pair in _encoded_pairs(name, member, styles.get(name), taken):
            # Checked for each pair, so that a form over the limit is never built.
            room -= len(pair) + 1
            if room < 0:
                raise ExecutionError(f"the form exceeds {MAX_FORM_BYTES // 2**20} MiB")
            pairs.append(pair)
    return "&".join(pairs).encode()


def _encoded_pairs(name: str, member: Json, style: Style | None, taken: Container[str]) -> Iterator[str]:
    if style is None or member is None or isinstance(member, FileArgument):
        yield from (urlencode([pair], errors="replace") for pair in _pairs(name, member, is_inner=False))
    else:
        # WHATWG URL: the application/x-www-form-urlencoded percent-encode set contains the comma.
        yield from ("=".join(pair).replace(",", "%2C") for pair in style.query_pairs(name, member, taken=taken))


def _pairs(name: str, value: Json, *, is_inner: bool) -> Iterator[tuple[str, str]]:
    match value:
        case None:
            return
        # FileArgument is a Mapping too.
        case FileArgument():
            yield name, value.base64
        case Mapping():
            for key, member in value.items():
                yield from _pairs(f"{name}[{_plain(key)}]", member, is_inner=True)
        case list():
            # PHP reads numbers with gaps as keys, so null items are dropped first.
            items = [item for item in value if item is not None]
            is_numbered = is_inner or any(_is_nested(item) for item in items)
            for index, item in enumerate(items):
                yield from _pairs(f"{name}[{index}]" if is_numbered else name, item, is_inner=is_numbered)
        case _:
            yield name, text_of(value)


def _is_nested(value: Json) -> bool:
    return isinstance(value, list | Mapping) and not isinstance(value, FileArgument)


def _plain(key: str) -> str:
    """Reject brackets in a name, which would add a level of nesting."""
    if "[" in key or "]" in key:
        raise ExecutionError(f"the field name {key[:60]!r} contains a bracket, which forms use for nesting")
    return key


class _MultipartBody(msgspec.Struct, frozen=True, kw_only=True):
    parts: tuple[tuple[str, PartTemplate], ...]
    is_optional: bool

    def render(self, arguments: JsonObject) -> Body | None:
        contents = [content for field, part in self.parts for content in part.contents(field, arguments)]
        if self.is_optional and not contents:
            return None
        return multipart_body(contents)


class _FileBody(msgspec.Struct, frozen=True, kw_only=True):
    source: FileSource
    media_type: TextTemplate | None

    def render(self, arguments: JsonObject) -> Body | None:
        media_type = rendered_media_type(self.media_type, arguments)
        for file in self.source.files(arguments):
            return _whole(file.data), media_type or file.media_type or OCTETS
        return None


class _TextBody(msgspec.Struct, frozen=True, kw_only=True):
    template: TextTemplate
    is_optional: bool

    def render(self, arguments: JsonObject) -> Body | None:
        if self.template.single is not None and isinstance(value := self.template.value(arguments), FileArgument):
            return _whole(value.data), value.media_type or OCTETS
        text = self.template.render_element(arguments) if self.is_optional else self.template.render(arguments)
        # A lone surrogate has no UTF-8 encoding.
        return None if text is None else (text.encode(errors="replace"), _TEXT)


BodyTemplate = _JsonBody | _FormBody | _MultipartBody | _FileBody | _TextBody
"""A compiled body. `render` returns None if there is no body.

Raises `ExecutionError` if a value is not allowed or a file cannot be read.
"""


def _whole(data: bytes | Source) -> StreamedBody:
    size = len(data) if isinstance(data, bytes) else data.size
    return StreamedBody(pieces=(data,), description={"size": size})


def compile_body(config: Http, scope: Scope, *, threads: DaemonThreadPool) -> BodyTemplate | None:
    is_optional = config.optional_body
    declared = scope.inputs.schemas.keys() if config.open_body else None
    match config.body_kind:
        case "json_":
            return _JsonBody(
                template=compile_json(config.json_, scope.at("json").taking_files()),
                has_files=scope.inputs.has_files,
                is_optional=is_optional and isinstance(config.json_, Mapping),
                declared=declared,
            )
        case "form":
            return _FormBody(
                template=compile_json(config.form, scope.at("form").taking_files(), null=UNDEFINED),
                is_optional=is_optional,
                styles={name: style_of(each) for name, each in config.form_styles.items()},
                declared=declared,
            )
        case "multipart":
            return _MultipartBody(
                parts=tuple(compile_parts(config.multipart or {}, scope.at("multipart"), threads=threads)),
                is_optional=is_optional,
            )
        case "body" if isinstance(config.body, FileBody):
            return _FileBody(
                source=compile_source(config.body.file, scope.at("body", "file"), threads=threads),
                media_type=compile_media_type(config.body.type, scope.at("body", "type")),
            )
        case "body":
            source = config.body if isinstance(config.body, str) else ""
            return _TextBody(
                template=compile_text(source, scope.at("body").taking_files()),
                is_optional=is_optional,
            )
        case None:
            return None
