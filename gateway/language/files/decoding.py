"""Decodes files in arguments, from base64 or `data:` URIs.

Accepts base64 (RFC 4648 §4) and base64url (§5), with or without padding, spaces and line breaks (RFC 2045 §6.8), and
`data:` URIs (RFC 2397), base64 or percent-encoded, with the parameter `name` or `filename`.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote, unquote_to_bytes

import msgspec

from gateway.config.models.quantities import size_text
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.files.file_argument import FileArgument
from gateway.language.files.media_types import is_text, media_type_in
from gateway.language.schemas.errors import SchemaError
from gateway.language.schemas.keywords import properties_of, referenced

_MAX_HEAD: Final = 1024
"""Maximum characters of a `data:` URI before its comma."""
_MEDIA_TYPE: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}")
"""Matches a media type without parameters (RFC 6838 §4.2)."""
# Matches paths and URLs, which models send if they cannot read the file.
_PLACE: Final = re.compile(r"(?:https?|ftp|file)://|~?/|\.{1,2}/|[A-Za-z]:\\|[\w. -]+\.[A-Za-z]{2,4}$")
_TEXT: Final = "text/plain"


class FileRefusedError(ValueError):
    """Raised if a string does not encode an acceptable file. The message starts with "must be"."""


class FileRule(msgspec.Struct, frozen=True, kw_only=True):
    max_size: int | None = None
    media_types: tuple[str, ...] = ()
    """Accepted media types in lower case. If empty, all types are accepted."""


def decoded_file(text: str, rule: FileRule) -> FileArgument:
    """Decode a file from base64 or a `data:` URI.

    Raises:
        FileRefusedError: the encoding is invalid, the file is too large, or its media type is not accepted.
    """
    text = text.strip()
    if text[:5].lower() == "data:":
        return _from_uri(text, rule)
    data = _from_base64(text, rule)
    return FileArgument(data, media_type=_checked_type(None, data, rule))


def _from_uri(uri: str, rule: FileRule) -> FileArgument:
    head, comma, body = uri[5:].partition(",")
    if not comma or len(head) > _MAX_HEAD:
        raise FileRefusedError("must be a data: URI such as data:image/png;base64,…, but has no comma after its type")
    given, *parameters = (each.strip() for each in head.split(";"))
    if given and not _MEDIA_TYPE.fullmatch(given):
        raise FileRefusedError("must be a data: URI with a valid media type, such as data:image/png;base64,…")
    is_base64 = bool(parameters) and parameters[-1].lower() == "base64"
    if is_base64:
        # RFC 2397 §3: any character of the data can be percent-encoded, such as `=` at the end.
        data = _from_base64(unquote(body) if "%" in body else body, rule)
    else:
        # Check the minimum size before allocating memory.
        _check_size(len(body) - 2 * body.count("%"), rule)
        data = unquote_to_bytes(body)
        _check_size(len(data), rule)
    return FileArgument(data, media_type=_checked_type(given.lower() or None, data, rule), name=_name_in(parameters))


def _from_base64(text: str, rule: FileRule) -> bytes:
    if text.isascii():
        text = "".join(text.split())
    encoded = text.rstrip("=")
    # Check the size before decoding.
    _check_size(len(encoded) * 3 // 4, rule)
    if "+" not in encoded and "/" not in encoded:
        encoded = encoded.replace("-", "+").replace("_", "/")
    padded = encoded + "=" * (-len(encoded) % 4)
    try:
        # Without strict mode, `binascii` skips characters that are not base64.
        data = binascii.a2b_base64(padded, strict_mode=True)
    except ValueError:
        data = None
    # RFC 4648 §3.5: the unused bits of the last character must be zero.
    is_exact = data is not None and binascii.b2a_base64(data, newline=False) == padded.encode()
    if data is None or not is_exact or len(text) not in {len(encoded), len(padded)}:
        hint = ", not a path, name or URL" if len(text) <= _MAX_HEAD and _PLACE.match(text) else ""
        message = "must be a file's bytes as base64, or as a data: URI such as data:image/png;base64,…"
        raise FileRefusedError(message + hint)
    return data


def _check_size(size: int, rule: FileRule) -> None:
    if rule.max_size is not None and size > rule.max_size:
        raise FileRefusedError(f"must be at most {size_text(rule.max_size)}, was {size_text(size)}")


def _checked_type(given: str | None, data: bytes, rule: FileRule) -> str | None:
    """Return the media type that was sent, otherwise the only accepted type, otherwise the detected type."""
    wanted = " or ".join(rule.media_types)
    if given is not None:
        if rule.media_types and not _is_wanted(given, rule):
            raise FileRefusedError(f"must be {wanted}, was {given}")
        return given
    if len(rule.media_types) == 1 and "*" not in wanted:
        return wanted
    found = media_type_in(data)
    if not rule.media_types:
        return found
    if found is None and is_text(data):
        found = _TEXT
    if found is None:
        raise FileRefusedError(
            f"must be {wanted}, but the type cannot be detected: send the file as data:<media type>;base64,…"
        )
    if not _is_wanted(found, rule):
        raise FileRefusedError(f"must be {wanted}, but the content is {found}")
    return found


def _is_wanted(media_type: str, rule: FileRule) -> bool:
    return any(wanted in {"*/*", media_type, f"{media_type.partition('/')[0]}/*"} for wanted in rule.media_types)


def description_of(value: Json) -> JsonObject:
    """Return the name, type and approximate size of an encoded file without decoding it."""
    if not isinstance(value, str):
        return {"size": None}
    head, comma, _ = value[5:_MAX_HEAD].partition(",") if value[:5].lower() == "data:" else ("", "", "")
    size = (len(value) - (len(head) + 6 if comma else 0)) * 3 // 4
    facts = {"name": _name_in(head.split(";")[1:]), "type": head.partition(";")[0] or None, "size": size}
    return {key: value for key, value in facts.items() if value is not None}


def _name_in(parameters: Sequence[str]) -> str | None:
    named = dict(each.strip().partition("=")[::2] for each in parameters if "=" in each)
    name = named.get("name") or named.get("filename")
    # RFC 2397 §3: values are percent-encoded. Some clients quote them instead.
    return None if name is None else unquote(name.strip('"')) or None


Replace = Callable[[Json, FileRule | None, DocumentPath], Json]
"""Called with a file, its rule and its path in the arguments. Returns the replacement.

The rule is None for text where the schema expects an object or a list that contains files.
"""


def referenced_schema(schema: JsonObject, root: JsonObject) -> JsonObject | None:
    found = referenced(root, schema.get("$ref"))
    return found if isinstance(found, dict) else None


def schemas_of_same_value(schema: JsonObject, root: JsonObject) -> list[JsonObject]:
    """Return the subschemas for the same value: the target of `$ref`, and those in `allOf`, `anyOf` and `oneOf`."""
    lists = [schema.get(keyword) for keyword in ("allOf", "anyOf", "oneOf")]
    branches = [each for branches in lists if isinstance(branches, list) for each in branches]
    return [each for each in (referenced_schema(schema, root), *branches) if isinstance(each, dict)]


def schemas_of_parts(schema: JsonObject) -> list[JsonObject]:
    """Return the subschemas for the members of an object and the items of a list."""
    parts = [*properties_of(schema).values(), schema.get("additionalProperties"), schema.get("items")]
    return [each for each in parts if isinstance(each, dict)]


class FileLocator(msgspec.Struct, frozen=True):
    """Finds the files in arguments, with the help of their schema."""

    schema: JsonObject
    """The schema as written, with `type: file`."""
    rules: Mapping[int, FileRule | None]
    """Maps the `id()` of each subschema with `type: file` to its rule, and those that contain one to None."""

    def replaced(
        self, value: Json, replace: Replace, path: DocumentPath = (), *, schema: JsonObject | None = None
    ) -> Json:
        schema = self.schema if schema is None else schema
        if id(schema) not in self.rules:
            return value
        rule = self.rules[id(schema)]
        for each in schemas_of_same_value(schema, self.schema):
            value = self.replaced(value, replace, path, schema=each)
        match value:
            case dict() if rule is None:
                members, others = properties_of(schema), schema.get("additionalProperties")
                return {
                    name: self._part(members.get(name, others), member, replace, (*path, name))
                    for name, member in value.items()
                }
            case list():
                items = schema.get("items")
                return [self._part(items, item, replace, (*path, index)) for index, item in enumerate(value)]
            # A text can also be an object or list with files that a model has quoted.
            case str() | dict() if rule is not None or schemas_of_parts(schema):
                return replace(value, rule, path)
            case _:
                return value

    def _part(self, schema: Json, value: Json, replace: Replace, path: DocumentPath) -> Json:
        return self.replaced(value, replace, path, schema=schema) if isinstance(schema, dict) else value

    def decoded(self, arguments: JsonObject) -> tuple[JsonObject, list[SchemaError]]:
        """Return the arguments with decoded files, and the errors of files that cannot be decoded."""
        errors: list[SchemaError] = []

        def decode(value: Json, rule: FileRule | None, path: DocumentPath) -> Json:
            if rule is None or not isinstance(value, str):
                return value
            try:
                return decoded_file(value, rule)
            except FileRefusedError as error:
                errors.append(SchemaError(path=path, message=str(error)))
                return value

        return self.replaced(arguments, decode), errors

    def size(self, arguments: JsonObject) -> int:
        """Return the total length in characters of the encoded files in `arguments`, which do not have to be valid."""
        sizes: list[int] = []

        def note(value: Json, _rule: FileRule | None, _path: DocumentPath) -> Json:
            sizes.append(len(value))
            return value

        self.replaced(arguments, note)
        return sum(sizes)

    def described(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments with a description instead of each file. The arguments can be invalid."""
        described: JsonObject = self.replaced(arguments, lambda value, _rule, _path: description_of(value))
        return described


def data_uri(data: bytes, *, media_type: str, name: str) -> str:
    """Encode a file as a data URI (RFC 2397) with the file name as a parameter."""
    parameter = f";name={quote(name, safe='')}" if name else ""
    return f"data:{media_type}{parameter};base64,{base64.b64encode(data).decode()}"
