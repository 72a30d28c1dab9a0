"""Compiles inputs of `type: file`, and creates the schema for clients, which shows files as strings."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final

import msgspec
import orjson
from pydantic import ValidationError

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.base import Items, Model, matching
from gateway.config.models.quantities import PositiveSize
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.files.decoding import FilePlaces, FileRefusedError, FileRule, decoded_file, size_in_words
from gateway.language.schemas.header_parameters import KEYWORD as HEADER_KEYWORD
from gateway.language.schemas.keywords import referenced, rewritten, subschemas

Place = Callable[[DocumentPath], DocumentPath]
"""Maps a path in a schema to its place in the file."""

FILE: Final = "file"
_WORDS: Final = re.compile(rb'"(?:file|max_size|media_types)"')
_ENVELOPE: Final = 1024
"""Bytes of a message in addition to the file."""
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
    """Maximum size. Default: what fits into a message (`listen.max_body`)."""
    media_types: Items[MediaRange] = ()
    """Accepted media types, such as image/* or application/pdf. Default: all."""


def is_file_input(schema: JsonObject) -> bool:
    """Whether values of a schema are files (or null)."""
    kind = schema.get("type")
    return kind == FILE or (isinstance(kind, list) and FILE in kind)


def holds_files_alone(schema: JsonObject) -> bool:
    """Whether values of a schema are files or lists of files."""
    items = schema.get("items")
    return is_file_input(schema) or (
        schema.get("type") == "array" and isinstance(items, Mapping) and is_file_input(items)
    )


def compile_file_inputs(
    schema: JsonObject, problems: Problems, *, place: Place, max_body: int | None = None
) -> tuple[JsonObject, FilePlaces | None]:
    """Return the schema for clients, and the places of files if there are any.

    Warns about files that do not fit into a message of `max_body` bytes.
    """
    inputs = []
    for path, found in _file_inputs_in(schema):
        if is_file_input(found):
            inputs.append((path, found))
        for keyword in () if is_file_input(found) else sorted(_OURS & found.keys()):
            message = f"`{keyword}` requires `type: file`, and has no effect on other values"
            problems.at(*place((*path, keyword))).error(message)
    if not inputs:
        return schema, None
    finder = _Finder(root=schema, problems=problems, place=place, max_body=max_body)
    places = finder.places_of(schema, ())
    # By identity, because references can share a part of the schema.
    for path, found in inputs:
        if id(found) not in finder.made:
            message = "a file must be an input, a member of an object, or an item of a list; it is not supported here"
            problems.at(*place((*path, "type"))).error(message)
    shown: JsonObject = rewritten(schema, _show_as_text)
    return shown, places


def _file_inputs_in(schema: JsonObject) -> list[tuple[DocumentPath, JsonObject]]:
    if not _mentions_file(schema):
        return []
    inputs: list[tuple[DocumentPath, JsonObject]] = []
    waiting: list[tuple[DocumentPath, JsonObject]] = [((), schema)]
    while waiting:
        path, found = waiting.pop()
        if is_file_input(found) or not _OURS.isdisjoint(found):
            inputs.append((path, found))
        waiting += [((*path, *step), below) for step, below in subschemas(found)]
    return inputs


def _mentions_file(schema: JsonObject) -> bool:
    try:
        return _WORDS.search(orjson.dumps(schema)) is not None
    except (TypeError, RecursionError):  # reported when the schema is compiled
        return True


class _Finder(msgspec.Struct, frozen=True, kw_only=True):
    root: JsonObject
    problems: Problems
    place: Place
    max_body: int | None
    made: dict[int, FilePlaces] = msgspec.field(default_factory=dict)

    def places_of(self, schema: JsonObject, path: DocumentPath) -> FilePlaces:
        if (known := self.made.get(id(schema))) is not None:
            return known
        # Stored first, because a `$ref` can refer back.
        places = self.made[id(schema)] = FilePlaces()
        if is_file_input(schema):
            places.rule = self._rule(schema, path)
        else:
            self._add_parts(places, schema, path)
        return places

    def _add_parts(self, places: FilePlaces, schema: JsonObject, path: DocumentPath) -> None:
        members = schema.get("properties")
        if isinstance(members, Mapping):
            for name, member in members.items():
                if isinstance(member, Mapping) and self._leads_to_files(member):
                    places.members[name] = self.places_of(member, (*path, "properties", name))
        for keyword, attribute in (("additionalProperties", "other_members"), ("items", "items")):
            below = schema.get(keyword)
            if isinstance(below, Mapping) and self._leads_to_files(below):
                setattr(places, attribute, self.places_of(below, (*path, keyword)))
        for step, below in self._same_value(schema):
            if self._leads_to_files(below):
                places.also.append(self.places_of(below, (*path, *step)))
        self._check_alternatives(schema, path)

    def _same_value(self, schema: JsonObject) -> Iterator[tuple[DocumentPath, JsonObject]]:
        if (target := self._target(schema)) is not None:
            yield ("$ref",), target
        for keyword in ("allOf", "anyOf", "oneOf"):
            branches = schema.get(keyword)
            for index, branch in enumerate(branches if isinstance(branches, list) else ()):
                if isinstance(branch, Mapping):
                    yield (keyword, index), branch

    def _target(self, schema: JsonObject) -> JsonObject | None:
        found = referenced(self.root, schema.get("$ref"))
        return found if isinstance(found, Mapping) else None

    def _leads_to_files(self, schema: JsonObject) -> bool:
        seen, waiting = set(), [schema]
        while waiting:
            found = waiting.pop()
            if id(found) in seen:
                continue
            seen.add(id(found))
            if is_file_input(found):
                return True
            waiting += [below for _, below in subschemas(found)]
            waiting += [below for _, below in self._same_value(found)]
        return False

    def _check_alternatives(self, schema: JsonObject, path: DocumentPath) -> None:
        for keyword in ("anyOf", "oneOf"):
            branches = [each for each in schema.get(keyword, ()) if isinstance(each, Mapping)]
            # An alternative without a type accepts text.
            kinds = [(self._target(branch) or branch).get("type", "string") for branch in branches]
            if any(kind == FILE for kind in kinds) and any("string" in kind for kind in kinds):
                message = "a file and a text cannot be alternatives: both are sent as text"
                self.problems.at(*self.place((*path, keyword))).error(message)

    def _rule(self, schema: JsonObject, path: DocumentPath) -> FileRule:
        problems = self.problems.at(*self.place(path))
        kind = schema["type"]
        if kind != FILE and set(kind) != {FILE, "null"}:
            problems.at("type").error("a file and a text cannot be alternatives; expected file, or [file, null]")
        for keyword in schema.keys() - _OURS - _ANNOTATIONS - {"type"}:
            if keyword == HEADER_KEYWORD:
                problems.at(keyword).error("a file cannot be mirrored in a header field")
            elif not keyword.startswith("x-"):
                problems.at(keyword).error(
                    f"`{keyword}` cannot be used with `type: file`; use `max_size` or `media_types`"
                )
        try:
            given = FileInput.model_validate({key: schema[key] for key in _OURS & schema.keys()})
        except ValidationError as error:
            for details in error.errors(include_url=False, include_context=False):
                problems.at(*details["loc"]).error(details["msg"])
            return FileRule()
        self._warn_of_size(given.max_size, problems.at("max_size"))
        media_types = tuple(each.lower() for each in given.media_types)
        rule = FileRule(max_size=given.max_size, media_types=() if "*/*" in media_types else media_types)
        _check_default(schema, rule, problems)
        return rule

    def _warn_of_size(self, max_size: int | None, problems: Problems) -> None:
        # Base64 uses four bytes for three.
        most = None if self.max_body is None else max(0, (self.max_body - _ENVELOPE) * 3 // 4)
        if self.max_body is not None and most is not None and max_size is not None and max_size > most:
            problems.warning(
                "a file of this size does not fit in a request as base64: `listen.max_body` is "
                f"{size_in_words(self.max_body)}, enough for files of {size_in_words(most)}"
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
    media_types = [each for each in _listed(schema.pop("media_types", None)) if each != "*/*"]
    rule = ", ".join(filter(None, [" or ".join(media_types), _size(schema.pop("max_size", None))]))
    how = f"A file{f' ({rule})' if rule else ''}, as base64 or as a data: URI."
    said = schema.get("description")
    schema["type"] = "string" if schema["type"] == FILE else ["string", "null"]
    schema["description"] = f"{said.rstrip()} {how}" if isinstance(said, str) and said.strip() else how
    # JSON Schema Validation §8.3: validators do not decode the value, so data: URIs are valid too.
    schema["contentEncoding"] = "base64"
    if len(media_types) == 1 and "*" not in media_types[0]:
        schema["contentMediaType"] = media_types[0]


def _listed(value: Json) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _size(value: Json) -> str:
    return f"at most {value} bytes" if isinstance(value, int) else f"at most {value}" if value is not None else ""
