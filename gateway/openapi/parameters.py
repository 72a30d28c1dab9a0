"""Converts the parameters of operations, and names the inputs of tools (OpenAPI 3.1, "Style Values")."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

import msgspec

from gateway.json_types import Json
from gateway.language.templates.caller import CALLER
from gateway.openapi.document import DocumentError, Node
from gateway.openapi.operations import MAX_NAME, Operation, hash_of
from gateway.openapi.schemas import Schemas

Place = Literal["path", "query", "header", "cookie", "body"]
PLACES: Final[tuple[Place, ...]] = ("path", "query", "header", "cookie", "body")
"""Locations in order of precedence. If two locations have the same name, the later location becomes a suffix."""

_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_OTHERS_IN_PATH: Final = re.compile(r"[^A-Za-z0-9_]+")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JINJA_KEYWORDS: Final = frozenset({
    "and", "block", "elif", "else", "endfor", "endif", "endset", "false", "False", "for", "if", "in", "inputs", "is",
    "loop", "none", "None", "not", "or", "recursive", "self", "set", "true", "True",
})  # fmt: skip


class Input(msgspec.Struct, frozen=True, kw_only=True):
    place: Place
    wire_name: str
    schema: Json
    is_required: bool = False

    @property
    def key(self) -> tuple[Place, str]:
        return self.place, self.wire_name


def input_names(inputs: Iterable[Input]) -> dict[tuple[Place, str], str]:
    """Return a unique input name for each parameter and body member, by location and original name.

    The order of the inputs does not affect the names:

    1. Invalid characters become `_`, and long names are shortened.
    2. If changed names are no longer unique in their location, these names get a hash as a suffix.
    3. If a name is used in several locations, all but the first get their location as a suffix: `id__query`.
       `caller` is reserved.
    """
    given = {each.key: _clean(each) for each in inputs}
    for place in PLACES:
        own = {key: name for key, name in given.items() if key[0] == place}
        for key, name in own.items():
            is_shared = sum(other == name for other in own.values()) > 1
            if is_shared and name != key[1]:
                # The suffix has eight characters: two underscores and six digits.
                given[key] = f"{name[: MAX_NAME - 8]}__{hash_of(key[1])}"
    found: dict[tuple[Place, str], str] = {}
    for place in PLACES:
        # Templates use `caller` for the identity of the caller.
        taken = {CALLER, *found.values()}
        names = {key: name for key, name in given.items() if key[0] == place}
        for key, name in names.items():
            others = taken | {other for each, other in names.items() if each != key}
            found[key] = _free(name, key, taken=taken, others=others)
    return found


def _free(name: str, key: tuple[Place, str], *, taken: set[str], others: set[str]) -> str:
    if name not in taken:
        return name
    suffixed = f"{name}__{key[0]}"
    if suffixed not in taken | others:
        return suffixed
    return f"{name[: MAX_NAME - 8]}__{hash_of(repr(key))}"


def expression(name: str, *, filtered: str = "") -> str:
    """Return the template expression for an input's value, with an optional Jinja filter."""
    is_plain = _IDENTIFIER.fullmatch(name) is not None and name not in _JINJA_KEYWORDS
    value = name if is_plain else f"inputs['{name}']"
    return f"{{{{ {value} | {filtered} }}}}" if filtered else f"{{{{ {value} }}}}"


def _clean(each: Input) -> str:
    others = _OTHERS_IN_PATH if each.place == "path" else _OTHERS  # RFC 6570 §2.3: no hyphen in a variable's name
    name = others.sub("_", each.wire_name)
    if name != each.wire_name:
        name = name.strip("_-") or "value"
    if not re.match(r"[A-Za-z_]", name):
        name = f"_{name}"
    # Reserve ten characters for a suffix such as `__header`.
    if len(name) <= MAX_NAME - 10:
        return name
    return f"{name[: MAX_NAME - 18]}_{hash_of(each.wire_name)}"


_LOCATIONS: Final[tuple[Place, ...]] = ("path", "query", "header", "cookie")
_STYLES: Final[Mapping[str, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The supported styles of each location, starting with the default."""
_PROTECTED: Final = re.compile(
    r"(?i)accept|authorization|connection|content-.*|cookie|expect|forwarded|host|keep-alive|mcp-.*|proxy-.*|te|trailer"
    r"|transfer-encoding|upgrade|x-api-key|x-forwarded-.*"
)
"""Header fields that callers must not set (OpenAPI 3.0.3 "Parameter Object")."""
_OPTIONAL: Final = ("query", "querystring", "header", "cookie")


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    input: Input
    style: str
    explode: bool
    allows_reserved: bool = False
    media_type: str | None = None
    """The media type in `content`, or None if the parameter has a style instead."""
    is_scalar: bool = True

    def in_path(self, name: str) -> str:
        """Return the URI template expression (RFC 6570) of a path parameter."""
        if self.media_type is not None and not self.is_scalar:
            raise DocumentError(f"the path parameter `{self.input.wire_name}` is JSON, which is not supported in paths")
        explode = "*" if self.explode and not self.is_scalar else ""
        if self.style != "matrix":
            return f"{{{'.' if self.style == 'label' else ''}{name}{explode}}}"
        # RFC 6570 §3.2.7: `{;name}` also writes the variable's name, which can differ from the parameter's.
        if name == self.input.wire_name:
            return f"{{;{name}{explode}}}"
        if explode:
            raise DocumentError(f"the name of the path parameter `{self.input.wire_name}` is not allowed by its style")
        return f";{self.input.wire_name}={{{name}}}"

    def written(self, name: str) -> Json:
        if self.media_type is not None and not self.is_scalar:
            return expression(name, filtered="tojson")
        if self.is_scalar and not self.allows_reserved:
            return expression(name)
        styled: dict[str, Json] = {"value": expression(name)}
        if self.style not in {"form", "simple"}:
            styled["style"] = self.style
        if self.explode is not (self.style == "form") and self.style != "deepObject":
            styled["explode"] = self.explode
        if self.allows_reserved:
            styled["allow_reserved"] = True
        return styled


def parameters_of(operation: Operation, schemas: Schemas, note: Callable[[str], None]) -> list[Parameter]:
    """Return the parameters of an operation and of its path item. Protected header fields are left out.

    An optional parameter without a name is ignored, and `note` is called with a message.
    """
    found: dict[tuple[Place, str], Parameter] = {}
    # OpenAPI 3.0.3 "Path Item Object": an operation overrides the path's parameter with the same name and `in`.
    for around in (*reversed(operation.items), operation.node):
        # Some documents replace the list by a reference.
        listed = schemas.follow(around.at("parameters"))
        if listed.value and not isinstance(listed.value, list):
            raise DocumentError(f"the parameters at {listed.shown} are not a list")
        for node in listed.items():
            parameter = _parameter(schemas.follow(node), schemas, note)
            if parameter is not None:
                found[parameter.input.key] = parameter
    in_template = re.findall(r"\{([^{}]+)\}", operation.path)
    for name in in_template:  # add parameters that the document does not declare
        key: tuple[Place, str] = ("path", name)
        implied = Input(place="path", wire_name=name, schema={"type": "string"}, is_required=True)
        found.setdefault(key, Parameter(input=implied, style="simple", explode=False))
    for place, name in [*found]:
        if place == "path" and name not in in_template:
            note(f"the path parameter `{name}` is ignored, because the path has no `{{{name}}}`")
            del found[place, name]
    return [*found.values()]


def _parameter(node: Node, schemas: Schemas, note: Callable[[str], None]) -> Parameter | None:
    given = node.object
    name, place = given.get("name"), given.get("in")
    if not isinstance(name, str) or not name or place not in _LOCATIONS:
        message = f"the parameter at {node.shown} has no `name` or no valid `in`"
        if place not in _OPTIONAL or given.get("required") is True:
            raise DocumentError(message)
        note(f"{message}, so it is ignored")
        return None
    if place == "header" and _PROTECTED.fullmatch(name):
        return None
    content = given.get("content")
    # OpenAPI 3.0.3 "Parameter Object": `content` has exactly one entry.
    media_type = next(iter(content), None) if isinstance(content, dict) else None
    schema = node.at("schema") if media_type is None else node.at("content", media_type, "schema")
    style, explode = _style(given, place, name)
    return Parameter(
        input=Input(
            place=place,
            wire_name=name,
            schema=_described(schemas.convert(schema), given),
            # OpenAPI 3.0.3 "Parameter Object": a path parameter must be required, but many documents omit `required`.
            is_required=given.get("required") is True or place == "path",
        ),
        style=style,
        explode=explode,
        allows_reserved=place == "query" and given.get("allowReserved") is True,
        media_type=media_type,
        is_scalar=_is_scalar(schema, schemas),
    )


def _style(given: Mapping[str, Json], place: str, name: str) -> tuple[str, bool]:
    known = _STYLES[place]
    style = given.get("style", known[0])
    if style == "cookie":  # OpenAPI 3.2: `form` without percent-encoding
        style = "form"
    if style not in known:
        raise DocumentError(f"the style `{style}` of the parameter `{name}` is not one of {', '.join(known)}")
    explode = given.get("explode")
    return style, explode if isinstance(explode, bool) else style == "form"


def _described(schema: Json, given: Mapping[str, Json]) -> Json:
    made = dict(schema) if isinstance(schema, dict) else {}
    if isinstance(said := given.get("description"), str) and said.strip():
        own = made.get("description")
        made = {**made, "description": said if not own or own in said else f"{said.rstrip()} {own}"}
    if given.get("deprecated") is True:
        made["deprecated"] = True
    return made


def _is_scalar(schema: Node, schemas: Schemas) -> bool:
    waiting, seen = [schema], 0
    # The limit ends cyclic schemas.
    while waiting and seen < 100:
        node = schemas.follow(waiting.pop())
        seen += 1
        types = node.object.get("type")
        if {"array", "object"} & set(types if isinstance(types, list) else [types] if isinstance(types, str) else []):
            return False
        if types is None and ("properties" in node.object or "items" in node.object):
            return False
        for keyword in ("allOf", "anyOf", "oneOf"):
            waiting += node.at(keyword).items()
    return True
