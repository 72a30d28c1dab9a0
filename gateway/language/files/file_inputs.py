"""Compiles inputs of `type: file`, and creates the schema for clients, which shows files as strings."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final

from pydantic import ValidationError

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.base import Items, Model, matching
from gateway.config.models.quantities import PositiveSize, size_text
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.files.decoding import (
    FileLocator,
    FileRefusedError,
    FileRule,
    decoded_file,
    referenced_schema,
    schemas_of_parts,
    schemas_of_same_value,
)
from gateway.language.schemas.keywords import HEADER_KEYWORD, rewritten, subschemas

Place = Callable[[DocumentPath], DocumentPath]
"""Maps a path in a schema to the path of the same node in the configuration."""

FILE: Final = "file"
_ENVELOPE: Final = 1024
"""Estimated size of a message without the file, in bytes."""
_OURS: Final = frozenset({"max_size", "media_types"})
_ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
)


MediaRange = Annotated[
    str,
    matching(r"\*/\*|[A-Za-z0-9!#$&^_.+-]+/(\*|[A-Za-z0-9!#$&^_.+-]+)", "a media type such as image/png, or image/*"),
]
"""A media type or range without parameters (RFC 9110 §12.5.1)."""


class FileInput(Model):
    """A file: base64 or a `data:` URI for models, bytes for backends."""

    max_size: PositiveSize | None = None
    """Maximum size. Default: the largest file that fits into a message (`listen.max_body`)."""
    media_types: Items[MediaRange] = ()
    """Accepted media types, such as image/* or application/pdf. Default: all."""


def is_file_input(schema: JsonObject) -> bool:
    """Whether values of a schema are files (or null)."""
    kind = schema.get("type")
    return kind == FILE or (isinstance(kind, list) and FILE in kind)


def accepts_only_files(schema: JsonObject) -> bool:
    """Whether all valid values of a schema are files or lists of files."""
    items = schema.get("items")
    return is_file_input(schema) or (
        schema.get("type") == "array" and isinstance(items, Mapping) and is_file_input(items)
    )


def compile_file_inputs(
    schema: JsonObject, problems: Problems, *, place: Place, max_body: int | None = None
) -> tuple[JsonObject, FileLocator | None]:
    """Return the schema for clients, and a `FileLocator` if the schema contains files.

    Warn if a file of the maximum size does not fit into a message of `max_body` bytes.
    """
    inputs = []
    for path, found in _schemas_in(schema):
        if is_file_input(found):
            inputs.append((path, found))
            continue
        for keyword in sorted(_OURS & found.keys()):
            message = f"`{keyword}` requires `type: file`, and has no effect on other values"
            problems.at(*place((*path, keyword))).error(message)
    if not inputs:
        return schema, None
    leading = _leading_to_files(schema)
    rules: dict[int, FileRule | None] = dict.fromkeys(leading)
    for path, found in inputs:
        rules[id(found)] = _rule(found, problems.at(*place(path)), max_body=max_body)
        # Compare by identity, because several references can share one subschema.
        if id(found) not in leading:
            message = "`type: file` is not supported here, only for inputs, members of objects and items of lists"
            problems.at(*place((*path, "type"))).error(message)
    for path, found in _schemas_in(schema):
        for keyword in _mixed_alternatives(found, schema):
            message = "a file and a string cannot be alternatives, because both are sent as strings"
            problems.at(*place((*path, keyword))).error(message)
    shown: JsonObject = rewritten(schema, _show_as_text)
    return shown, FileLocator(schema, rules)


def _schemas_in(schema: JsonObject) -> Iterator[tuple[DocumentPath, JsonObject]]:
    waiting: list[tuple[DocumentPath, JsonObject]] = [((), schema)]
    while waiting:
        path, found = waiting.pop()
        yield path, found
        waiting += [((*path, *step), below) for step, below in subschemas(found)]


def _leading_to_files(root: JsonObject) -> set[int]:
    """Return the `id()` of each subschema with `type: file`, and of each subschema that contains one."""
    waiting, schemas = [root], dict[int, tuple[JsonObject, list[JsonObject]]]()
    while waiting:
        schema = waiting.pop()
        if id(schema) not in schemas:
            below = [*schemas_of_parts(schema), *schemas_of_same_value(schema, root)]
            schemas[id(schema)] = schema, below
            waiting += below
    leading = {at for at, (schema, _) in schemas.items() if is_file_input(schema)}
    while more := {at for at, (_, below) in schemas.items() if any(id(each) in leading for each in below)} - leading:
        leading |= more
    return leading


def _mixed_alternatives(schema: JsonObject, root: JsonObject) -> Iterator[str]:
    for keyword in ("anyOf", "oneOf"):
        branches = [each for each in schema.get(keyword, ()) if isinstance(each, Mapping)]
        # An alternative without a type accepts text.
        kinds = [(referenced_schema(each, root) or each).get("type", "string") for each in branches]
        if any(kind == FILE for kind in kinds) and any("string" in kind for kind in kinds):
            yield keyword


def _rule(schema: JsonObject, problems: Problems, *, max_body: int | None) -> FileRule:
    kind = schema["type"]
    if kind != FILE and set(kind) != {FILE, "null"}:
        problems.at("type").error("`file` can be combined only with `null`, as in [file, null]")
    for keyword in schema.keys() - _OURS - _ANNOTATIONS - {"type"}:
        if keyword == HEADER_KEYWORD:
            problems.at(keyword).error("`x-mcp-header` cannot be used with `type: file`")
        elif not keyword.startswith("x-"):
            problems.at(keyword).error(f"`{keyword}` cannot be used with `type: file`. Use `max_size` or `media_types`")
    try:
        given = FileInput.model_validate({key: schema[key] for key in _OURS & schema.keys()})
    except ValidationError as error:
        for details in error.errors(include_url=False, include_context=False):
            problems.at(*details["loc"]).error(details["msg"])
        return FileRule()
    _warn_of_size(given.max_size, problems.at("max_size"), max_body=max_body)
    media_types = tuple(each.lower() for each in given.media_types)
    rule = FileRule(max_size=given.max_size, media_types=() if "*/*" in media_types else media_types)
    _check_default(schema, rule, problems)
    return rule


def _warn_of_size(max_size: int | None, problems: Problems, *, max_body: int | None) -> None:
    if max_body is None or max_size is None:
        return
    # Base64 encodes three bytes as four.
    most = max(0, (max_body - _ENVELOPE) * 3 // 4)
    if max_size > most:
        problems.warning(
            "a file of this size does not fit in a request as base64, because `listen.max_body` is "
            f"{size_text(max_body)}. Use at most {size_text(most)}"
        )


def _check_default(schema: JsonObject, rule: FileRule, problems: Problems) -> None:
    default = schema.get("default")
    if not isinstance(default, str):
        return  # the validator rejects other types
    try:
        decoded_file(default, rule)
    except FileRefusedError as error:
        problems.at("default").error(f"the default is invalid: {error}")


def _show_as_text(schema: dict[str, Json]) -> None:
    if not is_file_input(schema):
        return
    given = schema.pop("media_types", None)
    media_types = [
        each for each in (given if isinstance(given, list) else ()) if isinstance(each, str) and each != "*/*"
    ]
    rule = ", ".join(filter(None, [" or ".join(media_types), _size(schema.pop("max_size", None))]))
    how = f"A file{f' ({rule})' if rule else ''}, as base64 or as a data: URI."
    said = schema.get("description")
    schema["type"] = "string" if schema["type"] == FILE else ["string", "null"]
    schema["description"] = f"{said.rstrip()} {how}" if isinstance(said, str) and said.strip() else how
    # JSON Schema Validation §8.3: validators do not decode the value, so data: URIs are valid too.
    schema["contentEncoding"] = "base64"
    if len(media_types) == 1 and "*" not in media_types[0]:
        schema["contentMediaType"] = media_types[0]


def _size(value: Json) -> str:
    return f"at most {value} bytes" if isinstance(value, int) else f"at most {value}" if value is not None else ""
