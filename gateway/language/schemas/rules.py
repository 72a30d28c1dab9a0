"""Checks JSON Schemas before they are compiled: metaschema, size, depth, references, patterns and cost.

Unused parts, such as definitions in `$defs`, are checked too, because clients receive the whole schema.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Final

import jsonschema_rs
import orjson

from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.schemas.errors import SchemaError, describe, shown
from gateway.language.schemas.keywords import subschemas
from gateway.language.schemas.validation_cost import (
    COSTING,
    MAX_FAN_OUT,
    MAX_REPETITIONS,
    Nodes,
    ValidationCost,
    compiles,
    repetitions,
    validation_cost_of,
)
from gateway.wire.jsonrpc import is_deeper

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 64
# The limit counts the steps of a match. Only patterns with look-around or back-references backtrack.
PATTERN_OPTIONS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=30_000)

_DEFAULT_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DIALECTS: Final[Mapping[str, type[jsonschema_rs.Validator]]] = {
    _DEFAULT_DIALECT: jsonschema_rs.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
}


def dialect_of(schema: JsonObject) -> str | None:
    """Return the URI of the dialect in `$schema`, or None if the dialect is not supported."""
    uri = schema.get("$schema", _DEFAULT_DIALECT)
    # The URI of draft-07 ends with `#`, which many authors omit.
    uri = uri.removesuffix("#") if isinstance(uri, str) else None
    return uri if uri in DIALECTS else None


def plain(schema: JsonObject) -> JsonObject | SchemaError:
    """Return a copy of a schema that contains only JSON types, or the reason why the schema cannot be used.

    Interpolated text becomes plain strings.
    """
    try:
        data = orjson.dumps(schema)
    except (TypeError, RecursionError) as error:
        return SchemaError(path=(), message=f"cannot be written as JSON: {error}")
    if len(data) > MAX_BYTES:
        return SchemaError(path=(), message=f"is larger than {MAX_BYTES // 1024} KiB")
    copy: JsonObject = orjson.loads(data)
    # The number of brackets is an upper bound of the depth, and faster to find.
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and is_deeper(copy, MAX_DEPTH):
        return SchemaError(path=(), message=f"is nested more than {MAX_DEPTH} deep")
    return copy


def check_schema(schema: JsonObject) -> ValidationCost | list[SchemaError]:
    """Run these checks in order. Return the cost of validation, or all errors of the first failed check.

    1. `$schema` names a supported dialect.
    2. The schema matches the metaschema of the dialect.
    3. All references resolve within the schema, and all patterns compile.
    4. The cost of validation is below the limits.
    """
    dialect = dialect_of(schema)
    if dialect is None:
        return [_unknown_dialect(schema["$schema"])]
    errors = _metaschema_validator(dialect).iter_errors(schema)
    if described := [each for error in errors for each in describe(error, {}, noun="keyword")]:
        return described
    if not mentions(schema, COSTING):  # no references or patterns, as in most schemas
        return ValidationCost()
    nodes, schema_problems = _walked(schema, dialect)
    if schema_problems:
        return schema_problems
    cost = validation_cost_of(nodes)
    messages = [
        f"the pattern {shown(each)} of member names is too expensive to match" for each in sorted(cost.costly_names)
    ]
    if cost.in_place > MAX_FAN_OUT:
        messages.insert(0, f"applies {cost.in_place} schemas to one value, but at most {MAX_FAN_OUT} are allowed")
    return [SchemaError(path=(), message=message) for message in messages] or cost


_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def _unknown_dialect(uri: Json) -> SchemaError:
    hint = did_you_mean(str(uri), DIALECTS) or f"; use one of {', '.join(DIALECTS)}"
    return SchemaError(path=("$schema",), message=f"names a dialect that is not supported{hint}")


@cache
def _metaschema_validator(uri: str) -> jsonschema_rs.Validator:
    return DIALECTS[uri]({"$ref": uri}, validate_formats=False, offline=True)


def mentions(value: Json, keywords: frozenset[str]) -> bool:
    if isinstance(value, dict):
        return not keywords.isdisjoint(value) or any(mentions(member, keywords) for member in value.values())
    return isinstance(value, list) and any(mentions(item, keywords) for item in value)


def _walked(schema: JsonObject, dialect: str) -> tuple[Nodes, list[SchemaError]]:
    """Return all reachable schemas by `id`, and the errors in references and patterns."""
    start: DocumentPath = ()
    specification, resolver = _resolver_of(schema, dialect)
    waiting = deque([(start, schema, resolver)])
    # Use the identity, because equal schemas can be at several places.
    nodes: dict[int, tuple[JsonObject, list[tuple[str, int]]]] = {id(schema): (schema, [])}
    schema_problems: list[SchemaError] = []
    while waiting:
        path, current, resolver = waiting.popleft()
        schema_problems += _pattern_problems(path, current)
        # Visit subschemas before references, so that a problem is reported at its position, not at a reference.
        for step, member in subschemas(current):
            if step[0] not in _NOT_APPLIED:
                nodes[id(current)][1].append((_way(step), id(member)))
            if id(member) not in nodes:
                nodes[id(member)] = (member, [])
                inner = resolver and resolver.in_subresource(specification.create_resource(member))
                waiting.append(((*path, *step), member, inner))
        for keyword in _REFERENCES:
            if not isinstance(reference := current.get(keyword), str):
                continue
            if (found := _target(resolver, reference)) is None:
                schema_problems.append(SchemaError(path=(*path, keyword), message=_unresolved(reference)))
            # The schemas true and false have no cost.
            elif isinstance(target := found.contents, dict):
                nodes[id(current)][1].append((keyword, id(target)))
                if id(target) not in nodes:
                    nodes[id(target)] = (target, [])
                    waiting.append(((*path, keyword), target, found.resolver))
    return nodes, schema_problems


def _target(resolver: Json, reference: str) -> Json:
    """Return the target of a reference and the resolver of the target, or None if the target does not exist."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - slow, and few schemas have references

    try:
        return resolver.lookup(reference)
    # ValueError: a JSON Pointer with an index that is not a number (`#/allOf/x`). TypeError: a pointer into true.
    except (Unresolvable, ValueError, TypeError):
        return None


def _resolver_of(schema: JsonObject, dialect: str) -> tuple[Json, Json]:
    """Return the dialect's specification and the schema's resolver, or `(None, None)` if there are no references."""
    if not mentions(schema, frozenset(_REFERENCES)):
        return None, None
    from referencing import Registry  # noqa: PLC0415 - slow, and few schemas have references
    from referencing.jsonschema import specification_with  # noqa: PLC0415 - slow, and few schemas have references

    specification: Json = specification_with(dialect)
    registry: Registry[Json] = Registry()
    return specification, registry.resolver_with_root(specification.create_resource(schema))


def _way(step: DocumentPath) -> str:
    # Until 2019-09, a list of schemas in `items` has the meaning of `prefixItems`.
    return "prefixItems" if step[0] == "items" and len(step) > 1 else str(step[0])


def _unresolved(reference: str) -> str:
    if reference.startswith("#"):
        return f"refers to {reference}, which the schema does not contain"
    return f"can only refer to locations in the same schema (#/…), because other documents are not fetched: {reference}"


_NOT_APPLIED: Final = frozenset({"$defs", "definitions", "contentSchema"})


def _pattern_problems(path: DocumentPath, schema: JsonObject) -> Iterator[SchemaError]:
    if isinstance(pattern := schema.get("pattern"), str) and not is_pattern_usable(pattern):
        yield SchemaError(path=(*path, "pattern"), message=_refused(pattern))
    if isinstance(members := schema.get("patternProperties"), dict):
        yield from (
            SchemaError(path=(*path, "patternProperties", pattern), message=_refused(pattern))
            for pattern in members
            if not is_pattern_usable(pattern)
        )


_POSIX_CLASS: Final = re.compile(r"\[[^\]]*\[:\^?[a-z]+:\]")
"""In ECMA-262, `[[:alpha:]]` is a class of the characters `[:alph`, which is never intended."""


@lru_cache(maxsize=4096)
def is_pattern_usable(pattern: str) -> bool:
    """Whether jsonschema-rs supports an ECMA-262 pattern, and can match the pattern in bounded time."""
    is_refused = repetitions(pattern) > MAX_REPETITIONS or _POSIX_CLASS.search(pattern) is not None
    return not is_refused and compiles(pattern, PATTERN_OPTIONS)


def _refused(pattern: str) -> str:
    if (times := repetitions(pattern)) > MAX_REPETITIONS:
        return f"the pattern {shown(pattern)} repeats {times} times, more than {MAX_REPETITIONS}; use `maxLength`"
    return f"the pattern {shown(pattern)} is not a supported ECMA-262 regular expression"
