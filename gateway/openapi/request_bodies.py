"""Converts the request bodies of operations to inputs and to keys of the `http:` backend.

Each member of an object body becomes an input. Any other body becomes one input named `body`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from gateway.json_types import Json
from gateway.openapi.document import DocumentError, Node
from gateway.openapi.operations import Operation
from gateway.openapi.parameters import Input, Place, expression
from gateway.openapi.schemas import Schemas

Names = Mapping[tuple[Place, str], str]
BODY: Final = "body"
_MAX_SCHEMAS: Final = 100
"""Maximum number of schemas in one flattened body. The limit stops an `allOf` that refers to itself."""


class RequestBody(msgspec.Struct, frozen=True, kw_only=True):
    media_type: str
    format: "BodyFormat"
    is_required: bool
    members: tuple[Input, ...] | None
    """None if the whole body is one input."""
    encodings: Node | None = None
    whole: Input | None = None
    is_open: bool = False

    @property
    def inputs(self) -> list[Input]:
        if self.members is None:
            return [] if self.whole is None else [self.whole]
        if self.is_required:
            return [*self.members]
        # If an optional body is sent, it needs all required members: see `dependencies`.
        return [msgspec.structs.replace(each, is_required=False) for each in self.members]

    def dependencies(self, names: Names) -> dict[str, list[str]]:
        """Return `dependentRequired` for an optional body: if any member is sent, all required members must be sent."""
        if self.is_required or not self.members:
            return {}
        required = [names[each.key] for each in self.members if each.is_required]
        each_name = (names[each.key] for each in self.members)
        found = {name: [other for other in required if other != name] for name in each_name}
        return {name: others for name, others in found.items() if others}

    def http(self, names: Names, values: Mapping[tuple[Place, str], Json]) -> dict[str, Json]:
        written = self.format.write(self, names, values)
        if not self.is_required:
            written["optional_body"] = True
        if self.is_open:
            written["open_body"] = True
        default = self.format.default_type
        if default is not None and "*" not in self.media_type and self.media_type.strip().lower() != default:
            written["headers"] = {"Content-Type": self.media_type}
        return written


class BodyFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A format of request bodies, and the media types that use the format."""

    pattern: re.Pattern[str]
    write: Callable[["RequestBody", Names, Mapping[tuple[Place, str], Json]], dict[str, Json]]
    is_flat: bool = False
    """Whether the members of objects become inputs."""
    is_form: bool = False
    """Whether the body must be an object."""
    has_files: bool = False
    can_be_open: bool = False
    default_type: str | None = None
    """The backend's default `Content-Type`. "" means no default. None means that the backend decides."""


def request_body_of(operation: Operation, schemas: Schemas) -> RequestBody | None:
    """Return the request body of an operation, or None if it has no body.

    A body of GET, HEAD or DELETE has no defined semantics (RFC 9110 §9.3.1, §9.3.2, §9.3.5), so it is ignored unless
    the document requires it (OpenAPI 3.0.3 "Operation Object").

    Raises:
        DocumentError: no supported format can express the body.
    """
    given = operation.node.at("requestBody")
    can_be_ignored = operation.method in {"get", "head", "delete"}
    try:
        node = schemas.follow(given)
    except DocumentError:
        if not can_be_ignored:
            raise
        return None
    is_required = node.at("required").value is True
    if given.value is None or (can_be_ignored and not is_required):
        return None
    content = schemas.follow(node.at("content"))
    if not isinstance(content.value, dict) or (is_required and not content.value):
        raise DocumentError(f"the request body at {node.shown} has no usable `content` (got {str(content.value)[:60]})")
    if not content.value:
        return None
    return _body(content, schemas, is_required=is_required, can_be_ignored=can_be_ignored)


def _body(content: Node, schemas: Schemas, *, is_required: bool, can_be_ignored: bool) -> RequestBody | None:
    media_type, body_format = _chosen(content.value)
    media = schemas.follow(content.at(media_type))
    schema = media.at("schema")
    if (body_format.is_form or can_be_ignored) and _is_empty(schemas.follow(schema).value):
        return None
    sent = body_format.default_type or media_type if "*" in media_type else media_type
    if body_format.is_flat and (found := _members_of(schema, body_format, schemas)) is not None:
        encodings = media.at("encoding")
        members = tuple(
            _member(name, found, schemas=schemas, encoding=encodings.at(name).object, body_format=body_format)
            for name in found.properties
        )
        return RequestBody(
            media_type=sent,
            format=body_format,
            is_required=is_required,
            members=members,
            encodings=encodings,
            is_open=found.is_open,
        )
    if body_format.is_form:
        raise DocumentError(f"its {media_type} body is not an object with known fields")
    if body_format.has_files:
        whole = Input(place="body", wire_name=BODY, schema=_file({}), is_required=is_required)
    elif body_format.is_flat:
        whole = Input(place="body", wire_name=BODY, schema=schemas.convert(schema), is_required=is_required)
    else:
        # The caller writes the encoded text. The schema describes the decoded value.
        whole = Input(place="body", wire_name=BODY, schema={"type": "string"}, is_required=is_required)
    return RequestBody(media_type=sent, format=body_format, is_required=is_required, members=None, whole=whole)


def _chosen(content: Iterable[str]) -> tuple[str, BodyFormat]:
    # Prefer plain JSON, then a merge patch (RFC 7396), because the members of both become inputs.
    preferred = sorted(content, key=lambda each: ("application/json" not in each, "/merge-patch" not in each))
    for body_format in _FORMATS:
        for media_type in preferred:
            if body_format.pattern.fullmatch(media_type.partition(";")[0].strip()):
                return media_type, body_format
    raise DocumentError(f"its body has no supported media type: {', '.join(content)}")


def _member(
    name: str, found: "_Members", *, schemas: Schemas, encoding: Mapping[str, Json], body_format: BodyFormat
) -> Input:
    node = found.member(name)
    schema = _file_schema(node, schemas, encoding) if body_format.pattern is _MULTIPART else None
    if schema is None:
        schema = schemas.convert(node)
    return Input(place="body", wire_name=name, schema=schema, is_required=name in found.required)


class _Members(msgspec.Struct, kw_only=True):
    properties: dict[str, list[Node]] = msgspec.field(default_factory=dict)
    """The schemas of each member. If a member has several schemas, the schemas are alternatives."""
    required: set[str] = msgspec.field(default_factory=set)
    read_only: set[str] = msgspec.field(default_factory=set)
    is_open: bool = False

    def member(self, name: str) -> Node:
        first, *others = self.properties[name]
        different = [first.value]
        different += [each.value for each in others if each.uri == first.uri and each.value not in different]
        return first if len(different) == 1 else Node({"anyOf": different}, first.uri, first.pointer)

    def join(self, part: "_Members") -> None:
        for name, nodes in part.properties.items():
            self.properties.setdefault(name, nodes)
        self.required |= part.required
        self.read_only |= part.read_only
        self.is_open |= part.is_open


def _any_of(branches: list[_Members]) -> _Members:
    """Combine alternatives. A member is required only if all alternatives require it."""
    made = _Members(
        required=set.intersection(*(each.required for each in branches)),
        read_only=set().union(*(each.read_only for each in branches)),
        is_open=any(each.is_open for each in branches),
    )
    for branch in branches:
        for name, nodes in branch.properties.items():
            made.properties.setdefault(name, []).extend(nodes)
    return made


def _members_of(schema: Node, body_format: BodyFormat, schemas: Schemas) -> _Members | None:
    """Return the members of an object schema and its `allOf`, or None if the body cannot be split into inputs.

    A form must be split into inputs, so the members of all alternatives in `oneOf` and `anyOf` are included.
    """
    found = _collected(schema, None, body_format, schemas, iter(range(_MAX_SCHEMAS)))
    if found is None:
        return None
    for name in sorted(found.required - found.properties.keys() - found.read_only):
        found.properties[name] = [Node({}, schema.uri)]
    return found if found.properties or (body_format.is_form and found.is_open) else None


def _collected(
    given: Node, container: Node | None, body_format: BodyFormat, schemas: Schemas, budget: Iterator[int]
) -> _Members | None:
    is_form = body_format.is_form
    if schemas.has_subtypes(given, container) and not is_form:
        return None
    node = schemas.follow(given)
    if next(budget, None) is None or not _is_flat(node, body_format):
        return None
    found = _own_members(node, body_format, schemas)
    for part in (*schemas.siblings(given), *node.at("allOf").items()):
        if (joined := _collected(part, node, body_format, schemas, budget)) is None:
            return None
        found.join(joined)
    for keyword in _ALTERNATIVES if is_form else ():
        if not (alternatives := node.at(keyword).items()):
            continue
        collected = (_collected(part, node, body_format, schemas, budget) for part in alternatives)
        branches = [each for each in collected if each is not None]
        if not branches:
            return None
        found.join(_any_of(branches))
    return found


def _is_flat(node: Node, body_format: BodyFormat) -> bool:
    is_form = body_format.is_form
    admits_others = is_form and body_format.can_be_open
    is_plain = _is_plain_object(node.value, admits_others=admits_others, admits_alternatives=is_form)
    return is_plain and (is_form or node.at("nullable").value is not True)


def _own_members(node: Node, body_format: BodyFormat, schemas: Schemas) -> _Members:
    members = schemas.follow(node.at("properties")).members()
    read_only = {name for name, member in members if schemas.is_of_other_direction(member)}
    required = node.value.get("required")
    others = node.at("additionalProperties").value
    is_open = others in (True, {}) or (body_format.is_form and isinstance(others, dict))
    return _Members(
        properties={name: [member] for name, member in members if name not in read_only},
        required={each for each in (required if isinstance(required, list) else ()) if isinstance(each, str)},
        read_only=read_only,
        is_open=body_format.can_be_open and is_open,
    )


def _is_empty(value: Json) -> bool:
    return not value or (
        _is_plain_object(value)
        and not any(value.get(key) for key in ("properties", "allOf", "additionalProperties", "required"))
    )


_ALTERNATIVES: Final = ("oneOf", "anyOf")
_NOT_FLAT: Final = ("not", "if", "patternProperties", "dependentSchemas", "propertyNames")


def _is_plain_object(value: Json, *, admits_others: bool = False, admits_alternatives: bool = False) -> bool:
    not_flat = _NOT_FLAT if admits_alternatives else (*_NOT_FLAT, *_ALTERNATIVES)
    if not isinstance(value, dict) or any(keyword in value for keyword in not_flat):
        return False
    types = value.get("type", "object")
    others = value.get("additionalProperties")
    is_open = isinstance(others, dict) and bool(others) and not admits_others
    is_well_formed = isinstance(value.get("properties", {}), dict) and isinstance(value.get("allOf", []), list)
    return types in ("object", ["object"]) and not is_open and is_well_formed


def _file_schema(node: Node, schemas: Schemas, encoding: Mapping[str, Json]) -> Json:
    value = schemas.follow(node).object
    if value.get("type") == "array":
        inner = _file_schema(schemas.follow(node).at("items"), schemas, encoding)
        shown = {"description": value["description"]} if isinstance(value.get("description"), str) else {}
        return None if inner is None else {"type": "array", "items": inner, **shown}
    # OpenAPI 3.0 uses `format: binary`. OpenAPI 3.1 uses `contentMediaType` without `contentEncoding`.
    media_type = value.get("contentMediaType")
    is_file = value.get("format") == "binary" or (isinstance(media_type, str) and "contentEncoding" not in value)
    return _file(value, media_type or encoding.get("contentType")) if is_file else None


def _file(value: Mapping[str, Json], media_types: Json = None) -> dict[str, Json]:
    made: dict[str, Json] = {"type": "file"}
    if isinstance(description := value.get("description"), str):
        made["description"] = description
    named = [each.strip() for each in media_types.split(",")] if isinstance(media_types, str) else []
    is_narrow = named not in ([], ["*/*"], ["application/octet-stream"])
    # Ignore malformed media types, which would reject every file.
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
        each.wire_name: values[each.key] if each.key in values else expression(names[each.key])
        for each in body.members or ()
        if each.key in values or each.key in names
    }


_STYLE_KEYS: Final = {"style": "style", "explode": "explode", "allowReserved": "allow_reserved"}
_STYLES: Final = ("form", "spaceDelimited", "pipeDelimited", "deepObject")


def _form(body: RequestBody, names: Names, values: Mapping[tuple[Place, str], Json]) -> dict[str, Json]:
    """Return the fields of a form. Nested members use brackets unless the Encoding Object sets a style."""
    fields, styles = _fields(body, names, values), {}
    for each in body.members or ():
        name = each.wire_name
        encoding = {} if body.encodings is None else body.encodings.at(name).object
        style = {ours: encoding[key] for key, ours in _STYLE_KEYS.items() if isinstance(encoding.get(key), str | bool)}
        if name not in fields:
            continue
        if style:
            if style.get("style", "form") not in _STYLES:
                raise DocumentError(f"the style `{style['style']}` of the form field `{name}` is not supported")
            styles[name] = style
        elif each.key not in values and re.fullmatch(_JSON, str(encoding.get("contentType"))):
            fields[name] = expression(names[each.key], filtered="tojson")
    return {"form": fields, **({"form_styles": styles} if styles else {})}


def _multipart(body: RequestBody, names: Names, values: Mapping[tuple[Place, str], Json]) -> dict[str, Json]:
    return {"multipart": _fields(body, names, values)}


def _text(_body: RequestBody, names: Names, values: Mapping[tuple[Place, str], Json]) -> dict[str, Json]:
    return {"body": _whole(names, values)}


_MULTIPART: Final = re.compile(r"(?i)multipart/form-data")
_JSON_PATCH: Final = re.compile(r"(?i)application/json-patch\S*")
_JSON: Final = re.compile(r"(?i)(?!application/json-patch)[\w.*+-]+/([\w.*+-]+\+)?json|\*\+json")
_TEXT: Final = re.compile(
    r"(?i)text/(?!xml)[\w.*+-]+|application/([\w.-]+\+)?(x-)?(yaml|ndjson|jsonl|jsonlines|graphql|javascript|sql|toml|jwt|csv)"
)
_ANYTHING: Final = re.compile(r"\*/\*|application/\*")


def _json_format(pattern: re.Pattern[str]) -> BodyFormat:
    return BodyFormat(pattern=pattern, write=_json, is_flat=True, can_be_open=True, default_type="application/json")


_FORMATS: Final = (
    _json_format(_JSON),
    BodyFormat(
        pattern=re.compile(r"(?i)application/x-www-form-urlencoded"),
        write=_form,
        is_flat=True,
        is_form=True,
        can_be_open=True,
    ),
    BodyFormat(pattern=_MULTIPART, write=_multipart, is_flat=True, is_form=True),
    _json_format(_JSON_PATCH),
    BodyFormat(pattern=_TEXT, write=_text, default_type="text/plain"),
    BodyFormat(
        pattern=re.compile(r"(?i)application/octet-stream"),
        write=_text,
        has_files=True,
        default_type="",
    ),
    BodyFormat(
        pattern=re.compile(r"(?i)(application|text)/xml|[\w.+-]+/[\w.+-]+\+xml"),
        write=_text,
        default_type="",
    ),
    _json_format(_ANYTHING),
    BodyFormat(
        pattern=re.compile(r"(?i)(?!multipart/)[\w.+*-]+/[\w.+*-]+"),
        write=_text,
        has_files=True,
        default_type="",
    ),
)
"""The supported formats in order of preference."""
