"""What a JSON Schema of the file must keep to before anything is validated with it. Pure; knows no document.

A schema is checked against the metaschema of its dialect; its size and depth are bounded; each `$ref` leads to a place
in the schema itself, because nothing is ever fetched; each pattern is one that the engine takes. What no validation
would ever reach, such as an unused `$defs`, is checked as well: clients read it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Final

import jsonschema_rs
import orjson
from referencing import Registry, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, DRAFT201909, DRAFT202012

from gateway.executors.schemas.effort import (
    MOST_IN_PLACE,
    MOST_REPETITIONS,
    Effort,
    Node,
    effort_of,
    repetitions,
)
from gateway.executors.schemas.errors import SchemaError, describe, shown
from gateway.executors.schemas.keywords import ONE_SCHEMA, SCHEMA_LISTS, SCHEMA_MAPS
from gateway.json_types import Json, JsonObject

MAX_BYTES: Final = 256 * 1024
"""A schema is sent to every client that lists the tools."""
MAX_DEPTH: Final = 64
BACKTRACK_LIMIT: Final = 30_000
"""Steps of one match, each of which may go through the text (see `effort`).

Patterns without look-around or back-references run in linear time.
"""

PATTERN_OPTIONS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)

SchemaPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One mistake in a schema."""

    path: SchemaPath
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    uri: str
    validator: type[jsonschema_rs.Validator]
    specification: Specification[Json]


_DEFAULT_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DIALECTS: Final = {
    dialect.uri: dialect
    for dialect in (
        Dialect(
            uri=_DEFAULT_DIALECT,
            validator=jsonschema_rs.Draft202012Validator,
            specification=DRAFT202012,
        ),
        Dialect(
            uri="https://json-schema.org/draft/2019-09/schema",
            validator=jsonschema_rs.Draft201909Validator,
            specification=DRAFT201909,
        ),
        Dialect(
            uri="http://json-schema.org/draft-07/schema",
            validator=jsonschema_rs.Draft7Validator,
            specification=DRAFT7,
        ),
    )
}


def dialect_of(schema: JsonObject) -> Dialect | None:
    """Return the dialect that `$schema` names; None for one that we do not speak."""
    uri = schema.get("$schema", _DEFAULT_DIALECT)
    return DIALECTS.get(uri.removesuffix("#")) if isinstance(uri, str) else None


def plain(schema: JsonObject) -> JsonObject | Flaw:
    """Return a copy made of bare JSON types, as the engine and the wire take it; or what stands in the way.

    Interpolated strings lose their seams here.
    """
    try:
        data = orjson.dumps(schema)
    except (TypeError, RecursionError) as error:
        return Flaw(path=(), message=f"cannot be written as JSON: {error}")
    if len(data) > MAX_BYTES:
        return Flaw(path=(), message=f"is larger than {MAX_BYTES // 1024} KiB")
    copy: JsonObject = orjson.loads(data)
    if is_deeper(copy, than=MAX_DEPTH):
        return Flaw(path=(), message=f"is nested more than {MAX_DEPTH} deep")
    return copy


def is_deeper(value: Json, *, than: int) -> bool:
    """Whether lists and objects are nested in `value` more than so many levels."""
    if isinstance(value, dict):
        return than == 0 or any(is_deeper(member, than=than - 1) for member in value.values())
    if isinstance(value, list):
        return than == 0 or any(is_deeper(item, than=than - 1) for item in value)
    return False


def examined(schema: JsonObject) -> Effort | list[Flaw]:
    """How much work a plain schema makes, or what is wrong with it: all that the first of these rungs finds.

    1. `$schema` names a dialect that we speak.
    2. The schema fits that dialect's metaschema.
    3. Each reference resolves within the schema, and each pattern compiles.
    4. The work is bounded.
    """
    dialect = dialect_of(schema)
    if dialect is None:
        return [_unknown_dialect(schema["$schema"])]
    if misfits := [Flaw(path=error.path, message=error.message) for error in _metaschema_errors(schema, dialect)]:
        return misfits
    nodes, flaws = _walked(schema, dialect)
    if flaws:
        return flaws
    effort = effort_of(nodes, id(schema))
    return list(_effort_flaws(effort)) or effort


_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def subschemas(schema: JsonObject) -> Iterator[tuple[SchemaPath, JsonObject]]:
    """Yield the schemas that stand directly in `schema`, and where."""
    for keyword, value in schema.items():
        if keyword in ONE_SCHEMA and isinstance(value, dict):
            yield (keyword,), value
        elif keyword in SCHEMA_LISTS and isinstance(value, list):
            yield from (((keyword, index), item) for index, item in enumerate(value) if isinstance(item, dict))
        elif keyword in SCHEMA_MAPS and isinstance(value, dict):
            yield from (((keyword, name), item) for name, item in value.items() if isinstance(item, dict))


def _unknown_dialect(uri: Json) -> Flaw:
    near = get_close_matches(str(uri), DIALECTS, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(DIALECTS)}"
    return Flaw(path=("$schema",), message=f"names a dialect that is not supported{hint}")


def _metaschema_errors(schema: JsonObject, dialect: Dialect) -> Iterator[SchemaError]:
    for error in _metaschema_validator(dialect.uri).iter_errors(schema):
        yield from describe(error, {}, noun="keyword")


@cache
def _metaschema_validator(uri: str) -> jsonschema_rs.Validator:
    """The engine has the metaschemas of its dialects within itself."""
    return DIALECTS[uri].validator({"$ref": uri}, validate_formats=False, offline=True)


def _walked(schema: JsonObject, dialect: Dialect) -> tuple[dict[int, Node], list[Flaw]]:
    """Every schema in it, whether or not validation reaches it, and what is wrong with references and patterns."""
    start: SchemaPath = ()
    root = dialect.specification.create_resource(schema)
    waiting = deque([(start, schema, Registry().resolver_with_root(root))])
    nodes = {id(schema): Node(schema)}
    flaws: list[Flaw] = []
    while waiting:
        path, current, resolver = waiting.popleft()
        flaws += _pattern_flaws(path, current)
        for keyword in _REFERENCES:
            if isinstance(reference := current.get(keyword), str):
                try:
                    target = resolver.lookup(reference)
                except (Unresolvable, ValueError):
                    flaws.append(Flaw(path=(*path, keyword), message=_unresolved(reference)))
                    continue
                if isinstance(target.contents, dict):
                    nodes[id(current)].edges.append((keyword, id(target.contents)))
                    if id(target.contents) not in nodes:
                        nodes[id(target.contents)] = Node(target.contents)
                        waiting.append(((*path, keyword), target.contents, target.resolver))
        for step, member in subschemas(current):
            if step[0] not in _NOT_APPLIED:
                nodes[id(current)].edges.append((_way(step), id(member)))
            if id(member) not in nodes:
                nodes[id(member)] = Node(member)
                inner = resolver.in_subresource(dialect.specification.create_resource(member))
                waiting.append(((*path, *step), member, inner))
    return nodes, flaws


def _way(step: SchemaPath) -> str:
    """The keyword by which a member applies; until 2019-09 a list of `items` is what `prefixItems` is today."""
    return "prefixItems" if step[0] == "items" and len(step) > 1 else str(step[0])


def _effort_flaws(effort: Effort) -> Iterator[Flaw]:
    if effort.in_place > MOST_IN_PLACE:
        yield Flaw(path=(), message=f"applies {effort.in_place} schemas to one place, more than {MOST_IN_PLACE}")
    for pattern in sorted(effort.costly_names):
        yield Flaw(path=(), message=f"as a pattern of names, {shown(pattern)} is too intricate")


def _unresolved(reference: str) -> str:
    if reference.startswith("#"):
        return f"leads nowhere: this schema has no {reference}"
    return f"only places in the schema itself (#/…) can be referred to, nothing is fetched: {reference}"


_NOT_APPLIED: Final = frozenset({"$defs", "definitions", "contentSchema"})
"""Keywords whose schemas apply to nothing by themselves."""


def _pattern_flaws(path: SchemaPath, schema: JsonObject) -> Iterator[Flaw]:
    if isinstance(pattern := schema.get("pattern"), str) and not is_pattern_usable(pattern):
        yield Flaw(path=(*path, "pattern"), message=_refused(pattern))
    if isinstance(members := schema.get("patternProperties"), dict):
        yield from (
            Flaw(path=(*path, "patternProperties", pattern), message=_refused(pattern))
            for pattern in members
            if not is_pattern_usable(pattern)
        )


def is_pattern_usable(pattern: str) -> bool:
    """Whether the engine takes this ECMA-262 pattern, and promises bounds for it."""
    if repetitions(pattern) > MOST_REPETITIONS:
        return False
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=PATTERN_OPTIONS)
    except jsonschema_rs.ValidationError:
        return False
    return True


def _refused(pattern: str) -> str:
    if (times := repetitions(pattern)) > MOST_REPETITIONS:
        return f"the pattern {shown(pattern)} repeats {times} times, more than {MOST_REPETITIONS}; see `maxLength`"
    return f"the pattern {shown(pattern)} is not an ECMA-262 regular expression that the engine takes"
