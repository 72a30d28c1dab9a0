"""Request bodies: which of the offered media types is sent, the inputs that it takes, and the `http:` keys for it.

A body that is an object becomes flat inputs, one for each member; any other is the input `body`. Where several media
types are offered, the first of `_WRITERS` is taken.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from gateway.json_types import Json
from gateway.openapi.document import DocumentError
from gateway.openapi.inputs import Input, Place, expression
from gateway.openapi.operations import Operation
from gateway.openapi.references import Node, References
from gateway.openapi.schemas import Schemas

Names = Mapping[tuple[Place, str], str]
BODY: Final = "body"


class BodyMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a body that is an object, and what `encoding` says of it."""

    input: Input
    node: Node
    encoding: Mapping[str, Json]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True):
    media_type: str
    kind: "BodyFormat"
    is_required: bool
    members: tuple[BodyMember, ...] | None
    """None: the whole body is one input."""
    whole: Input | None = None
    is_open: bool = False
    """Whether members are allowed that the schema does not name."""

    @property
    def inputs(self) -> list[Input]:
        if self.members is None:
            return [] if self.whole is None else [self.whole]
        if self.is_required:
            return [each.input for each in self.members]
        # An optional body with required members has all of them or none: see `dependencies`.
        return [msgspec.structs.replace(each.input, is_required=False) for each in self.members]

    def dependencies(self, names: Names) -> dict[str, list[str]]:
        """`dependentRequired`: once a member of an optional body is given, the required ones must be."""
        if self.is_required or not self.members:
            return {}
        required = [names[each.input.key] for each in self.members if each.input.is_required]
        if not required:
            return {}
        each_name = (names[each.input.key] for each in self.members)
        found = {name: [other for other in required if other != name] for name in each_name}
        return {name: others for name, others in found.items() if others}

    def http(self, names: Names, values: Mapping[tuple[Place, str], Json]) -> dict[str, Json]:
        """The keys of the `http:` block; `values` are fixed by the operator."""
        written = self.kind.write(self, names, values)
        if not self.is_required:
            written["optional_body"] = True
        if self.is_open:
            written["open_body"] = True
        if self.kind.says_type(self.media_type):
            written["headers"] = {"Content-Type": self.media_type}
        return written


class BodyFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A group of media types, and how bodies of them are written."""

    pattern: re.Pattern[str]
    write: Callable[["RequestBody", Names, Mapping[tuple[Place, str], Json]], dict[str, Json]]
    is_flat: bool = False
    """Whether objects become flat inputs."""
    needs_object: bool = False
    has_files: bool = False
    can_be_open: bool = False
    says_type: Callable[[str], bool] = lambda _: False
    """Whether the header field must be written, because it is not what the backend says by itself."""
    sent_as: str | None = None
    """The media type that stands for one with a wildcard."""


def request_body_of(operation: Operation, references: References, schemas: Schemas) -> RequestBody | None:
    """The body of an operation; None without one.

    OpenAPI 3.0.3 "Operation Object": a body without semantics in HTTP (RFC 9110 §9.3.1, §9.3.2, §9.3.5) is ignored. A
    required one is sent all the same, because the service expects it.

    Raises:
        DocumentError: nothing here can write it.
    """
    given = operation.node.at("requestBody")
    can_be_ignored = operation.method in {"get", "head", "delete"}
    try:
        node = references.follow(given)
    except DocumentError:
        if not can_be_ignored:
            raise
        return None
    is_required = node.at("required").value is True
    if given.value is None or (can_be_ignored and not is_required):
        return None
    content = references.follow(node.at("content"))
    if not isinstance(content.value, dict) or (is_required and not content.value):
        raise DocumentError(f"the request body at {node.shown} has no usable `content` (got {str(content.value)[:60]})")
    return (
        _written(content, references, schemas, is_required=is_required, can_be_ignored=can_be_ignored)
        if content.value
        else None
    )


def _written(
    content: Node, references: References, schemas: Schemas, *, is_required: bool, can_be_ignored: bool
) -> RequestBody | None:
    media_type, kind = _chosen(content.value)
    media = references.follow(content.at(media_type))
    schema = media.at("schema")
    if (kind.needs_object or can_be_ignored) and _is_empty(references.follow(schema).value):
        return None
    sent = kind.sent_as if kind.sent_as is not None and "*" in media_type else media_type
    members = _members(schema, references, schemas, kind) if kind.is_flat else None
    if members is not None:
        encoding = media.at("encoding").value
        of = encoding if isinstance(encoding, dict) else {}
        made = tuple(
            _member(name, member, schemas=schemas, said=of.get(name), kind=kind) for name, member in members.items()
        )
        is_open = kind.can_be_open and _is_open(schema, references, kind)
        return RequestBody(media_type=sent, kind=kind, is_required=is_required, members=made, is_open=is_open)
    if kind.needs_object:
        raise DocumentError(f"its {media_type} body is no plain object, so that it has no fields")
    if kind.has_files:
        whole = Input(place="body", wire_name=BODY, schema=_file({}), is_required=is_required)
    else:
        converted = schemas.convert(schema, "request")
        # XML and other text is written by the caller; the schema is of what the text means.
        own = converted.schema if kind.is_flat else {"type": "string"}
        whole = Input(
            place="body",
            wire_name=BODY,
            schema=own,
            names=converted.names if kind.is_flat else frozenset(),
            is_required=is_required,
        )
    return RequestBody(media_type=sent, kind=kind, is_required=is_required, members=None, whole=whole)


def _chosen(content: Iterable[str]) -> tuple[str, BodyFormat]:
    # Plain JSON first, then a merge patch (RFC 7396), whose members are inputs as well.
    preferred = sorted(content, key=lambda each: ("application/json" not in each, "/merge-patch" not in each))
    for kind in _WRITERS:
        for media_type in preferred:
            if kind.pattern.fullmatch(media_type.partition(";")[0].strip()):
                return media_type, kind
    raise DocumentError(f"nothing here can write its body: {', '.join(content)}")


def _member(name: str, member: "tuple[Node, bool]", *, schemas: Schemas, said: Json, kind: BodyFormat) -> BodyMember:
    node, is_required = member
    encoding = said if isinstance(said, dict) else {}
    converted = schemas.convert(node, "request")
    made = Input(place="body", wire_name=name, schema=converted.schema, names=converted.names, is_required=is_required)
    if kind.pattern is _MULTIPART and (file := _file_schema(node, schemas, encoding)) is not None:
        made = msgspec.structs.replace(made, schema=file, names=frozenset())
    return BodyMember(input=made, node=node, encoding=encoding)


def _members(
    schema: Node, references: References, schemas: Schemas, kind: BodyFormat
) -> dict[str, tuple[Node, bool]] | None:
    """The members of an object, or of several that `allOf` joins, and whether each is required; None for other bodies.

    Raises:
        DocumentError: a reference leads nowhere.
    """
    properties: dict[str, Node] = {}
    required: set[str] = set()
    waiting: list[tuple[Node, Node | None]] = [(schema, None)]
    seen = 0
    admits_others = kind.needs_object and kind.can_be_open
    while waiting:
        given, whole = waiting.pop(0)
        # A form has to be an object, and takes the members that all subtypes share.
        if schemas.has_subtypes(given, whole) and not kind.needs_object:
            return None
        node = references.follow(given)
        waiting += [(beside, node) for beside in schemas.beside(given)]
        seen += 1
        # The bound ends an `allOf` that leads back to itself. No form is null.
        if (
            seen > 100
            or not _is_plain_object(node.value, admits_others=admits_others)
            or (node.at("nullable").value is True and not kind.needs_object)
        ):
            return None
        for name, member in references.follow(node.at("properties")).members():
            if not schemas.is_read_only(member):
                properties.setdefault(name, member)
        names = node.value.get("required")
        required.update(each for each in (names if isinstance(names, list) else ()) if isinstance(each, str))
        waiting += [(part, node) for part in node.at("allOf").items()]
    if not properties and not (admits_others and _is_open(schema, references, kind)):
        return None
    return {name: (node, name in required) for name, node in properties.items()}


def _is_empty(value: Json) -> bool:
    """Whether a schema describes an object without members, or nothing."""
    return not value or (
        _is_plain_object(value) and not any(value.get(key) for key in ("properties", "allOf", "additionalProperties"))
    )


def _is_open(schema: Node, references: References, kind: BodyFormat) -> bool:
    """Whether one of the objects that `_members` joins says that others are allowed."""
    node = references.follow(schema)
    others = node.at("additionalProperties").value
    is_open = others in (True, {}) or (kind.needs_object and isinstance(others, dict))
    return is_open or any(_is_open(part, references, kind) for part in node.at("allOf").items())


_NOT_FLAT: Final = ("anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas", "propertyNames")


def _is_plain_object(value: Json, *, admits_others: bool = False) -> bool:
    if not isinstance(value, dict) or any(keyword in value for keyword in _NOT_FLAT):
        return False
    types = value.get("type", "object")
    others = value.get("additionalProperties")
    is_open = isinstance(others, dict) and bool(others) and not admits_others
    lists = value.get("allOf", [])
    is_well_formed = isinstance(value.get("properties", {}), dict) and isinstance(lists, list)
    return types in ("object", ["object"]) and not is_open and is_well_formed


def _file_schema(node: Node, schemas: Schemas, encoding: Mapping[str, Json]) -> Json:
    """The input for a member of a multipart body that is a file, or a list of files; None for what is none."""
    value = schemas.target(node).value
    if not isinstance(value, dict):
        return None
    if value.get("type") == "array":
        inner = _file_schema(schemas.target(node).at("items"), schemas, encoding)
        shown = {"description": value["description"]} if isinstance(value.get("description"), str) else {}
        return None if inner is None else {"type": "array", "items": inner, **shown}
    # OpenAPI 3.0 says `format: binary`; 3.1 a media type that is not text, or nothing but `type: string` of octets.
    media_type = value.get("contentMediaType")
    is_file = value.get("format") == "binary" or (isinstance(media_type, str) and "contentEncoding" not in value)
    return _file(value, media_type or encoding.get("contentType")) if is_file else None


def _file(value: Mapping[str, Json], media_types: Json = None) -> dict[str, Json]:
    made: dict[str, Json] = {"type": "file"}
    if isinstance(said := value.get("description"), str):
        made["description"] = said
    named = [each.strip() for each in media_types.split(",")] if isinstance(media_types, str) else []
    is_narrow = named not in ([], ["*/*"], ["application/octet-stream"])
    # A media type that is none would let no file in.
    if is_narrow and all(re.fullmatch(r"[\w.+-]+/(\*|[\w.+-]+)", each) for each in named):
        made["media_types"] = named
    return made


def _json(body: RequestBody, names: Names, values: Mapping[tuple[Place, str], Json]) -> dict[str, Json]:
    return {"json": _fields(body, names, values) if body.members is not None else _whole(names, values)}


def _whole(names: Names, values: Mapping[tuple[Place, str], Json]) -> Json:
    key: tuple[Place, str] = ("body", BODY)
    return values[key] if key in values else expression(names[key])


def _fields(body: RequestBody, names: Names, values: Mapping[tuple[Place, str], Json]) -> dict[str, Json]:
    return {
        each.input.wire_name: values[each.input.key] if each.input.key in values else expression(names[each.input.key])
        for each in body.members or ()
        if each.input.key in values or each.input.key in names
    }


_STYLE_KEYS: Final = {"style": "style", "explode": "explode", "allowReserved": "allow_reserved"}
_STYLES: Final = ("form", "spaceDelimited", "pipeDelimited", "deepObject")


def _form(body: RequestBody, names: Names, values: Mapping[tuple[Place, str], Json]) -> dict[str, Json]:
    """A form: nested members are written in brackets, unless `encoding` says otherwise (OpenAPI "Encoding Object")."""
    fields, styles = _fields(body, names, values), {}
    for each in body.members or ():
        name, said = each.input.wire_name, each.encoding
        style = {ours: said[key] for key, ours in _STYLE_KEYS.items() if isinstance(said.get(key), str | bool)}
        if name not in fields:
            continue
        if style:
            if style.get("style", "form") not in _STYLES:
                raise DocumentError(f"the style `{style['style']}` of the form field `{name}` is not supported")
            styles[name] = style
        elif each.input.key not in values and re.fullmatch(_JSON, str(said.get("contentType"))):
            fields[name] = expression(names[each.input.key], filtered="tojson")
    return {"form": fields, **({"form_styles": styles} if styles else {})}


def _multipart(body: RequestBody, names: Names, values: Mapping[tuple[Place, str], Json]) -> dict[str, Json]:
    return {"multipart": _fields(body, names, values)}


def _text(_body: RequestBody, names: Names, values: Mapping[tuple[Place, str], Json]) -> dict[str, Json]:
    return {"body": _whole(names, values)}


def _is_not(*own: str) -> Callable[[str], bool]:
    return lambda media_type: media_type.strip().lower() not in own


_MULTIPART: Final = re.compile(r"(?i)multipart/form-data")
_BYTES: Final = re.compile(r"(?i)application/octet-stream")
_JSON_PATCH: Final = re.compile(r"(?i)application/json-patch\S*")
_JSON: Final = re.compile(r"(?i)(?!application/json-patch)[\w.*+-]+/([\w.*+-]+\+)?json|\*\+json")
_TEXT: Final = re.compile(
    r"(?i)text/(?!xml)[\w.*+-]+|application/([\w.-]+\+)?(x-)?(yaml|ndjson|jsonl|jsonlines|graphql|javascript|sql|toml|jwt|csv)"
)
_ANYTHING: Final = re.compile(r"\*/\*|application/\*")


def _json_format(pattern: re.Pattern[str]) -> BodyFormat:
    said = "application/json"
    return BodyFormat(
        pattern=pattern, write=_json, is_flat=True, can_be_open=True, says_type=_is_not(said), sent_as=said
    )


_WRITERS: Final = (
    _json_format(_JSON),
    BodyFormat(
        pattern=re.compile(r"(?i)application/x-www-form-urlencoded"),
        write=_form,
        is_flat=True,
        needs_object=True,
        can_be_open=True,
    ),
    BodyFormat(pattern=_MULTIPART, write=_multipart, is_flat=True, needs_object=True),
    _json_format(_JSON_PATCH),
    BodyFormat(pattern=_TEXT, write=_text, says_type=_is_not("text/plain"), sent_as="text/plain"),
    BodyFormat(
        pattern=re.compile(r"(?i)application/octet-stream"), write=_text, has_files=True, says_type=lambda _: True
    ),
    BodyFormat(
        pattern=re.compile(r"(?i)(application|text)/xml|[\w.+-]+/[\w.+-]+\+xml"), write=_text, says_type=lambda _: True
    ),
    _json_format(_ANYTHING),
    BodyFormat(
        pattern=re.compile(r"(?i)(?!multipart/)[\w.+*-]+/[\w.+*-]+"),
        write=_text,
        has_files=True,
        says_type=lambda type_: "*" not in type_,
    ),
)
"""The kinds of bodies that can be written, in the order in which they are preferred."""
