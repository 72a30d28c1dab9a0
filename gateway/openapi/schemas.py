"""Converts Schema Objects of OpenAPI 3.0 and 3.1 to JSON Schema 2020-12.

Each `$ref` is kept and its target becomes an entry of `$defs`, so cycles are harmless. Malformed keywords are dropped,
because many documents contain such keywords.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Final
from urllib.parse import unquote

import orjson

from gateway.json_types import Json
from gateway.language.schemas.rules import is_pattern_usable
from gateway.language.schemas.validation_cost import is_costly
from gateway.openapi.document import DocumentError, Node, References
from gateway.openapi.operations import hash_of

MAX_SUBTYPES: Final = 40
TYPES: Final = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_MAX_EXAMPLE: Final = 256
"""Maximum size of an example or default, in bytes."""


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_number(value: Json) -> bool:
    # `bool` is a subclass of `int`.
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_PLAIN: Final[Mapping[str, Callable[[Json], bool]]] = {
    **dict.fromkeys(("title", "description", "format", "contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"), _is_number),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems", "maxContains", "minContains"), _is_count),
    **dict.fromkeys(("maxProperties", "minProperties"), _is_count),
    **dict.fromkeys(("uniqueItems", "deprecated"), lambda value: isinstance(value, bool)),
    "enum": lambda value: isinstance(value, list) and bool(value),
    "const": lambda _: True,
}
"""Maps keywords without subschemas to functions that check the value of the keyword."""
_SCALARS: Final[Mapping[str, Callable[[Json], bool]]] = {
    "string": _is_text,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
}
_ONE: Final = ("items", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems")
_FORBIDDING: Final = frozenset({
    "enum", "const", "format", "multipleOf", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "maxLength",
    "minLength", "maxItems", "minItems", "maxContains", "minContains", "maxProperties", "minProperties", "uniqueItems",
})  # fmt: skip
_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


_DEFINITIONS: Final = "#/$defs/"

Alternative = tuple[Node, list[str]]
"""A schema, and the discriminator values that select the schema."""


class Schemas:
    """Converts the schemas of one document, for requests or for responses."""

    def __init__(self, references: References, *, uri: str, is_3_0: bool, is_response: bool = False) -> None:
        self._references: Final = references
        self._uri: Final = uri
        self._is_3_0: Final = is_3_0
        self._is_response: Final = is_response
        self._subtypes: Final[dict[tuple[str, tuple[str, ...]], list[Alternative]]] = {}
        self._nodes: Final[dict[str, tuple[Node, bool]]] = {}
        """The schema of each name under `$defs`, and whether the definition includes the schema's subtypes."""
        self._definitions: Final[dict[str, tuple[Json, tuple[str, ...]]]] = {}
        """Converted definitions, and the names to which each definition refers."""

    def definitions(self, *schemas: Json) -> dict[str, Json]:
        """Return the `$defs` that the converted schemas refer to, directly or through other definitions."""
        found: dict[str, Json] = {}
        waiting = [name for schema in schemas for name in _names_in(schema)]
        while waiting:
            name = waiting.pop()
            if name in self._nodes and name not in found:
                found[name], names = self._definition(name)
                waiting.extend(names)
        return dict(sorted(found.items()))

    def _definition(self, name: str) -> tuple[Json, tuple[str, ...]]:
        if name not in self._definitions:
            node, with_subtypes = self._nodes[name]
            made = self._choice(node) if with_subtypes else self.convert(node)
            self._definitions[name] = made, tuple(dict.fromkeys(_names_in(made)))
        return self._definitions[name]

    def follow(self, node: Node) -> Node:
        return self._references.follow(node)

    def has_subtypes(self, node: Node, container: Node | None = None) -> bool:
        """Return whether `node` refers to a schema with subtypes (OpenAPI 3.1, "Discriminator Object").

        `container` is the schema whose `allOf` contains the reference, if any. Return False if `container` is one of
        the subtypes, because a subtype only extends its parent, and not the other subtypes.
        """
        if "$ref" not in node.object:
            return False
        subtypes = self._subtypes_of(self.follow(node))
        return bool(subtypes) and not any(
            container is not None and each.place == container.place for each, _ in subtypes
        )

    def siblings(self, node: Node) -> list[Node]:
        """Return the keywords beside a `$ref` as a schema. OpenAPI 3.1 combines this schema with the target."""
        if self._is_3_0 or "$ref" not in node.object:
            return []
        others = {keyword: value for keyword, value in node.value.items() if keyword != "$ref"}
        return [Node(others, node.uri, node.pointer)] if others else []

    def _mapped(self, node: Node) -> list[Alternative]:
        found: dict[tuple[str, tuple[str, ...]], Alternative] = {}
        for value, target in node.at("discriminator", "mapping").members():
            # The target is a component name or a URI reference.
            reference = str(target.value)
            if "#" not in reference and "/" not in reference:
                reference = f"#/components/schemas/{reference}"
            with suppress(DocumentError):
                resolved = self._references.resolve(reference, base=node.uri)
                found.setdefault(resolved.place, (resolved, []))[1].append(value)
        return list(found.values())

    def _subtypes_of(self, node: Node) -> list[Alternative]:
        """Return the subtypes of a schema: its discriminator mapping or, without a mapping, all schemas that extend it.

        The list is empty without a discriminator, or if `oneOf` or `anyOf` already lists the subtypes.
        """
        if not isinstance(node.at("discriminator", "propertyName").value, str):
            return []
        if node.at("oneOf").value or node.at("anyOf").value:
            return []
        if node.place not in self._subtypes:
            found = self._mapped(node)
            if not found and node.uri == self._uri:
                found = [(each, []) for each in (*self._extending.get(node.shown, ()), node)]
            # Ignore too many subtypes, because models could not choose among them.
            is_usable = len(found) <= MAX_SUBTYPES and any(each.place != node.place for each, _ in found)
            self._subtypes[node.place] = found if is_usable else []
        return self._subtypes[node.place]

    @cached_property
    def _extending(self) -> Mapping[str, list[Node]]:
        """Maps each `$ref` in an `allOf` to the components that contain the `allOf`."""
        found: dict[str, list[Node]] = {}
        root = Node(self._references.root(self._uri), self._uri)
        for _, component in root.at("components", "schemas").members():
            for part in component.at("allOf").items():
                found.setdefault(str(part.at("$ref").value), []).append(component)
        return found

    def _named(self, node: Node, *, with_subtypes: bool) -> dict[str, Json]:
        """Return a `$ref` to a schema's entry in `$defs`. The entry's name does not depend on the conversion order."""
        # RFC 6901 §6: the fragment can be percent-encoded.
        last = _NAME.sub("_", unquote(node.pointer[-1] if node.pointer else "root")) or "schema"
        is_component = node.uri == self._uri and node.pointer[:-1] == ("components", "schemas")
        # Add a hash to other names, because only the names of the document's own components are unique.
        if not is_component or last != node.pointer[-1] or with_subtypes:
            place = f"{node.uri if node.uri != self._uri else ''}{node.shown}"
            last = f"{last}_{hash_of(f'subtypes of {place}' if with_subtypes else place)}"
        self._nodes.setdefault(last, (node, with_subtypes))
        return {"$ref": f"{_DEFINITIONS}{last}"}

    def convert(self, node: Node, container: Node | None = None) -> Json:
        """Convert a schema. `container` is the schema whose `allOf` contains this schema, if any."""
        given = node.value
        if isinstance(given, bool):
            return given or {}  # ignore `false`, which would allow no value
        if not isinstance(given, dict):
            return {}
        if isinstance(given.get("$ref"), str):
            return self._reference(node, container)
        made: dict[str, Json] = {}
        if types := _types(given.get("type")):
            made["type"] = types
        for keyword, fits in _PLAIN.items():
            if keyword in given and not (self._is_response and keyword in _FORBIDDING) and fits(given[keyword]):
                made[keyword] = given[keyword]
        self._bounds(given, made)
        self._members(node, made, container)
        self._subschemas(node, made)
        if not self._is_response:
            _describe(given, made)
            self._pattern(given, made)
            if "enum" in made:
                made["enum"] = _distinct(made["enum"])
                _reconcile(made)
        if self._is_3_0 and given.get("nullable") is True:
            return _nullable(made)
        return made

    def _choice(self, node: Node) -> Json:
        name = node.at("discriminator", "propertyName").value
        made: dict[str, Json] = {"anyOf": []}
        for each, values in self._subtypes_of(node):
            has_own = each.place != node.place and bool(self._subtypes_of(each))
            made["anyOf"].append(_tagged(self._named(each, with_subtypes=has_own), each, values, name))
        made |= {key: value for key in ("title", "description") if isinstance(value := node.value.get(key), str)}
        _describe(node.value, made)
        return made

    def _reference(self, node: Node, container: Node | None = None) -> Json:
        with_subtypes = not self._is_response and self.has_subtypes(node, container)
        made = self._named(self._resolved(node), with_subtypes=with_subtypes)
        for beside in self.siblings(node):  # OpenAPI 3.0.3 "Reference Object" ignores these keywords
            # Pass `node` as `container`, because `additionalProperties: false` would forbid the target's members.
            schema = self.convert(beside, node)
            made |= schema if isinstance(schema, dict) else {}
        return made

    def _bounds(self, given: Mapping[str, Json], made: dict[str, Json]) -> None:
        if self._is_response:
            return
        for plain, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if given.get(exclusive) is True and plain in made:
                made[exclusive] = made.pop(plain)

    def _members(self, node: Node, made: dict[str, Json], container: Node | None) -> None:
        properties = self.follow(node.at("properties"))
        left_out: set[str] = set()
        if isinstance(properties.value, dict):
            found = {}
            for name in properties.value:
                member = properties.at(name)
                if self.is_of_other_direction(member):
                    left_out.add(name)
                else:
                    found[name] = self.convert(member)
            made["properties"] = found
        required = node.value.get("required")
        if isinstance(required, list) and not self._is_response:
            # OpenAPI 3.0.3 "Schema Object": `required` applies to a `readOnly` member in responses only.
            names = [name for name in dict.fromkeys(filter(_is_text, required)) if name not in left_out]
            made |= {"required": names} if names else {}
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            value = node.value.get(keyword)
            if value is False and keyword == "additionalProperties" and self._is_joined(node, container):
                continue
            if isinstance(value, dict) or (isinstance(value, bool) and not self._is_response):
                made[keyword] = value if isinstance(value, bool) else self.convert(node.at(keyword))

    def _is_joined(self, node: Node, container: Node | None) -> bool:
        has_others = any(node.at(keyword).value for keyword in ("allOf", "anyOf", "oneOf"))
        return has_others or container is not None or (node.uri == self._uri and node.shown in self._extending)

    def is_of_other_direction(self, member: Node) -> bool:
        """Return whether a member is `readOnly` in a request, or `writeOnly` in a response."""
        keyword = "writeOnly" if self._is_response else "readOnly"
        return self.follow(member).object.get(keyword) is True

    def _subschemas(self, node: Node, made: dict[str, Json]) -> None:
        for keyword in _ONE:
            # Responses keep only `items`, because the other keywords only restrict values.
            if isinstance(node.value.get(keyword), dict) and not (self._is_response and keyword != "items"):
                made[keyword] = self.convert(node.at(keyword))
        if parts := node.at("allOf").items():
            made["allOf"] = [self.convert(each, node) for each in parts]
        if items := node.at("prefixItems").items():
            made["prefixItems"] = [self.convert(each) for each in items]
        # Documents use `oneOf` even if several alternatives match, so it becomes `anyOf`.
        for branches in filter(None, (node.at("anyOf").items(), node.at("oneOf").items())):
            alternatives = self._alternatives(branches, node)
            if "anyOf" in made:
                made.setdefault("allOf", []).append({"anyOf": alternatives})
            else:
                made["anyOf"] = alternatives
        patterns = node.at("patternProperties")
        if isinstance(patterns.value, dict) and not self._is_response:
            found = {each: ecma_pattern(each) for each in patterns.value}
            usable = {each: pattern for each, pattern in found.items() if pattern and not is_costly(pattern)}
            made["patternProperties"] = {new: self.convert(patterns.at(each)) for each, new in usable.items()}
            if len(usable) < len(patterns.value):
                # A dropped pattern must not make its members forbidden.
                made.pop("additionalProperties", None)

    def _alternatives(self, branches: list[Node], node: Node) -> list[Json]:
        by_place = {} if self._is_response else {each.place: values for each, values in self._mapped(node)}
        name = node.at("discriminator", "propertyName").value
        made = []
        for branch in branches:
            schema = self.convert(branch)
            if by_place and isinstance(branch.object.get("$ref"), str):
                target = self._resolved(branch)
                schema = _tagged(schema, target, by_place.get(target.place, []), name)
            made.append(schema)
        return made

    def _pattern(self, given: Mapping[str, Json], made: dict[str, Json]) -> None:
        if not isinstance(written := given.get("pattern"), str):
            return
        if (pattern := ecma_pattern(written)) is not None:
            made["pattern"] = pattern
        else:
            _append(made, f"Pattern: {written}")

    def _resolved(self, node: Node) -> Node:
        return self._references.resolve(node.value["$ref"], base=node.uri)


def _tagged(schema: Json, alternative: Node, values: list[str], name: Json) -> Json:
    own = alternative.at("properties", str(name))
    if own.at("type").value not in (None, "string"):
        return schema
    known = own.at("enum").value
    values = [value for value in values if not isinstance(known, list) or value in known]
    if not values or not isinstance(name, str):
        return schema
    kind: dict[str, Json] = {"const": values[0]} if len(values) == 1 else {"enum": values}
    return {**schema, "properties": {name: {"type": "string", **kind}}, "required": [name]}


def _names_in(schema: Json) -> Iterator[str]:
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith(_DEFINITIONS):
            yield reference.removeprefix(_DEFINITIONS)
    for member in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _names_in(member)


def _distinct(values: list[Json]) -> list[Json]:
    # JSON Schema core §4.2.2: 1 and 1.0 are equal. Larger floats can represent several integers.
    plain = [
        int(each) if isinstance(each, float) and each.is_integer() and abs(each) < 2**53 else each for each in values
    ]
    return [*{orjson.dumps(each, option=orjson.OPT_SORT_KEYS): each for each in plain}.values()]


def _types(given: Json) -> Json:
    if isinstance(given, str):
        return given if given in TYPES else None
    are_texts = isinstance(given, list) and all(isinstance(each, str) for each in given)
    known = [each for each in dict.fromkeys(given) if each in TYPES] if are_texts else []
    return known or None


def _reconcile(made: dict[str, Json]) -> None:
    """Convert the values of `enum` to the `type`. If that fails, remove the type, because no value would fit both."""
    kind = made.get("type")
    fits = _SCALARS.get(kind) if isinstance(kind, str) else None
    if fits is None:
        return
    values = [value if value is None or fits(value) else _other_type(value) for value in made["enum"]]
    if all(value is None or fits(value) for value in values):
        made["enum"] = _distinct(values)
    else:
        del made["type"]


def _other_type(value: Json) -> Json:
    if not isinstance(value, str):
        return orjson.dumps(value).decode()
    try:
        return orjson.loads(value)
    except ValueError:
        return value


def _nullable(made: dict[str, Json]) -> Json:
    """Allow null in a converted schema (`nullable` in OpenAPI 3.0.3, "Schema Object")."""
    if "type" not in made or made["type"] == "null":
        return {"anyOf": [made, {"type": "null"}]} if "allOf" in made or "oneOf" in made or "anyOf" in made else made
    made["type"] = [made["type"], "null"]
    if "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    return made


def _describe(given: Mapping[str, Json], made: dict[str, Json]) -> None:
    if "default" in given and len(written := orjson.dumps(given["default"])) <= _MAX_EXAMPLE:
        _append(made, f"Default: {written.decode()}")
    examples = given.get("examples") if isinstance(given.get("examples"), list) else [given.get("example")]
    shown = [each for each in examples or () if each is not None and len(orjson.dumps(each)) <= _MAX_EXAMPLE]
    if shown:
        made["examples"] = shown[:2]
    match given.get("discriminator"):
        case {"propertyName": str(name), "mapping": dict(mapping)}:
            kinds = ", ".join(f"{key} → {str(target).rpartition('/')[2]}" for key, target in mapping.items())
            _append(made, f"`{name}` selects the schema: {kinds}")
        case {"propertyName": str(name)}:
            _append(made, f"`{name}` selects the schema")


def _append(made: dict[str, Json], sentence: str) -> None:
    said = str(made.get("description", "")).rstrip()
    between = "" if not said else " " if said[-1] in ".!?:`" else ". "
    made["description"] = f"{said}{between}{sentence}."


# ECMA-262 §22.2.1 "Patterns", with the parameter UnicodeMode.
_ESCAPE: Final = r"\\(?:[fnrtv^$\\.*+?()\[\]{}|/]|0(?!\d)|c[A-Za-z]|x[\da-fA-F]{2}|u[\da-fA-F]{4}|u\{[\da-fA-F]+\})"
_PROPERTY: Final = (
    r"[CLMNPSZ][a-z]?|(?:Script|sc|Script_Extensions|scx|General_Category|gc)=\w+"
    r"|Alphabetic|Lowercase|Uppercase|White_Space|ASCII|Any|Emoji|ID_Start|ID_Continue"
)
_SET: Final = rf"\\(?:[dDwWsS]|[pP]\{{(?:{_PROPERTY})\}})"
_IN_CLASS: Final = rf"(?:{_ESCAPE}|\\[-b]|[^\]\\])"
_CLASS: Final = rf"\[\^?(?:{_SET}(?!-[^\]])|{_IN_CLASS}(?:-{_IN_CLASS}|(?!-[^\]])))*\]"
_ATOM: Final = rf"(?:{_ESCAPE}|{_SET}|{_CLASS}|\\[1-9]\d*|\\k<\w+>|[^\\^$*+?()\[\]{{}}|])"
_QUANTIFIER: Final = r"(?:(?:[*+?]|\{\d+(?:,\d*)?\})\??)?"
_GROUP: Final = r"\((?:\?(?:[:=!]|<[=!]|<[A-Za-z_$][\w$]*>))?"
_ECMA: Final = re.compile(rf"(?:(?:{_ATOM}|\)){_QUANTIFIER}|{_GROUP}|[\^$|]|\\[bB])*")
_SYNTAX: Final = frozenset("^$\\.*+?()[]{}|/")
_IN_SETS: Final = frozenset("-&~")
"""Characters that are special inside a character class of a pattern, but not outside."""


@lru_cache(maxsize=4096)
def ecma_pattern(written: str) -> str | None:
    """Convert a pattern to ECMA-262 with the flag `u`. Return None if there is no equivalent pattern.

    Clients that compile patterns reject a tool with an invalid pattern.
    """
    pattern = written.replace("(?P<", "(?<").replace(r"\A", "^").replace(r"\Z", "$").replace(r"\z", "$")
    if not _ECMA.fullmatch(pattern):
        pattern = re.sub(r"(?s)\\(.)", _plain, pattern)
    return pattern if _ECMA.fullmatch(pattern) and is_pattern_usable(pattern) else None


def _plain(escape: re.Match[str]) -> str:
    """Remove the backslash of an escape, unless the character would get another meaning."""
    character = escape[1]
    if (character.isascii() and character.isalnum()) or character in _SYNTAX:
        return escape[0]
    return f"\\x{ord(character):02x}" if character in _IN_SETS else character
