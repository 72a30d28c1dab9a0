"""Request bodies, compiled from `json`, `form`, `multipart` and `body`."""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import urlencode

from gateway.config.models.backends import Http
from gateway.config.models.http_bodies import FileBody
from gateway.errors import ExecutionError
from gateway.executors.http.multipart import (
    compile_files,
    compile_media_type,
    compile_parts,
    multipart_body,
)
from gateway.executors.http.styles import Style, deep_pairs, scalar_text, style_of, without_brackets
from gateway.executors.output.media_types import JSON, OCTETS
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.language.files.file_argument import FileArgument, json_with_files
from gateway.language.scope import Scope
from gateway.language.templates.render_state import json_of
from gateway.language.templates.templating import compile_json, compile_text

_FORM: Final = "application/x-www-form-urlencoded"
_TEXT: Final = "text/plain; charset=utf-8"
MAX_FORM_BYTES: Final = 16 * 2**20
"""The limit in bytes for a form. Nested fields repeat their parents' names, so a form can exceed the arguments."""


Body = tuple[bytes, str, Json]
"""The bytes of a body, its media type, and a description for `explain` if the bytes are not text."""


BodyTemplate = Callable[[JsonObject], Body | None]
"""Returns the body for a call's arguments, or None if there is no body.

Raises:
    ExecutionError: a value is not allowed, or a file cannot be read.
"""


def _compile_json(config: Http, scope: Scope) -> BodyTemplate:
    template, has_files = compile_json(config.json_, scope.at("json").taking_files()), scope.inputs.has_files
    is_optional = config.optional_body and isinstance(config.json_, Mapping)
    declared = _declared(config, scope)

    def render(arguments: JsonObject) -> Body | None:
        value = template(arguments)
        value = value if declared is None else {**_undeclared(arguments, declared), **value}
        if value is ABSENT or (is_optional and value == {}):
            return None
        return json_of(json_with_files(value) if has_files else value).encode(), JSON, None

    return render


def _compile_form(config: Http, scope: Scope) -> BodyTemplate:
    template = compile_json(config.form, scope.at("form").taking_files(), null=ABSENT)
    styles = {name: style_of(each) for name, each in config.form_styles.items()}
    declared = _declared(config, scope)

    def render(arguments: JsonObject) -> Body | None:
        fields = template(arguments)
        if declared is not None:
            # A caller's name with brackets could overwrite a member of a configured field.
            others = {without_brackets(name): value for name, value in _undeclared(arguments, declared).items()}
            fields = {**others, **fields}
        data = _encoded_form(fields, styles)
        return None if config.optional_body and not data else (data, _FORM, None)

    return render


def _declared(config: Http, scope: Scope) -> Collection[str] | None:
    # With `open_body`, all other arguments are added to the body.
    return scope.inputs.schemas.keys() if config.open_body else None


def _undeclared(arguments: JsonObject, declared: Collection[str]) -> JsonObject:
    return {name: value for name, value in arguments.items() if name not in declared}


def _encoded_form(fields: JsonObject, styles: Mapping[str, Style]) -> bytes:
    """Encode fields with nested values as a form.

    Nested values use brackets (`a[b]=1`), as in PHP, Rack and `qs`. A list of scalars repeats the field, as in HTML
    forms. The items of other lists are numbered.

    Raises:
        ExecutionError: a name contains a bracket, or the form is too long.
    """
    pairs, room = [], MAX_FORM_BYTES
    used_names = {name.lower() for name in fields}
    for name, member in fields.items():
        for pair in _encoded_pairs(name, member, styles.get(name), used_names):
            # Check the size after each pair, so that a form over the limit is never built.
            room -= len(pair) + 1
            if room < 0:
                raise ExecutionError(f"the form exceeds {MAX_FORM_BYTES // 2**20} MiB")
            pairs.append(pair)
    return "&".join(pairs).encode()


def _encoded_pairs(name: str, member: Json, style: Style | None, used_names: Container[str]) -> Iterator[str]:
    if style is None or member is None or isinstance(member, FileArgument):
        yield from (urlencode([pair], errors="replace") for pair in _pairs(name, member))
    else:
        # WHATWG URL: the application/x-www-form-urlencoded percent-encode set contains the comma.
        yield from (
            "=".join(pair).replace(",", "%2C") for pair in style.query_pairs(name, member, used_names=used_names)
        )


def _pairs(name: str, value: Json) -> Iterable[tuple[str, str]]:
    is_flat = isinstance(value, list) and not any(map(_is_nested, value))
    return [(name, scalar_text(item)) for item in value if item is not None] if is_flat else deep_pairs(name, value)


def _is_nested(value: Json) -> bool:
    return isinstance(value, list | Mapping) and not isinstance(value, FileArgument)


def _compile_multipart(config: Http, scope: Scope) -> BodyTemplate:
    parts = tuple(compile_parts(config.multipart or {}, scope.at("multipart")))

    def render(arguments: JsonObject) -> Body | None:
        contents = [content for part in parts for content in part(arguments)]
        return None if config.optional_body and not contents else multipart_body(contents)

    return render


def _compile_file(body: FileBody, scope: Scope) -> BodyTemplate:
    files = compile_files(body.file, scope.at("file"))
    media_type = compile_media_type(body.type, scope.at("type"))

    def render(arguments: JsonObject) -> Body | None:
        return next((_whole(file, media_type(arguments)) for file in files(arguments)), None)

    return render


def _compile_text(config: Http, scope: Scope) -> BodyTemplate:
    template = compile_text(config.body if isinstance(config.body, str) else "", scope.at("body").taking_files())

    def render(arguments: JsonObject) -> Body | None:
        if template.single is not None and isinstance(value := template.value(arguments), FileArgument):
            return _whole(value)
        text = template.render_element(arguments) if config.optional_body else template.render(arguments)
        # A lone surrogate has no UTF-8 encoding.
        return None if text is None else (text.encode(errors="replace"), _TEXT, None)

    return render


def _whole(file: FileArgument, media_type: str | None = None) -> Body:
    return file.data, media_type or file.media_type or OCTETS, {"size": len(file.data)}


def compile_body(config: Http, scope: Scope) -> BodyTemplate | None:
    match config.body_kind:
        case "json_":
            return _compile_json(config, scope)
        case "form":
            return _compile_form(config, scope)
        case "multipart":
            return _compile_multipart(config, scope)
        case "body" if isinstance(config.body, FileBody):
            return _compile_file(config.body, scope.at("body"))
        case "body":
            return _compile_text(config, scope)
        case None:
            return None
