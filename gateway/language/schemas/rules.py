"""Checks JSON Schemas before anything is validated with them. Pure; knows no document.

A schema is checked against the metaschema of its dialect; its size and depth are bounded; each `$ref` leads to a place
in the schema itself, because nothing is ever fetched; each pattern is one that the engine takes. What no validation
would ever reach, such as an unused `$defs`, is checked as well: clients read it.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Final

import jsonschema_rs
import orjson

from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.schemas.errors import SchemaError, describe, shown
from gateway.language.schemas.keywords import subschemas
from gateway.language.schemas.references import SchemaReferences, references_of
from gateway.language.schemas.validation_cost import (
    COSTING,
    MAX_FAN_OUT,
    MAX_REPETITIONS,
    SchemaNode,
    ValidationCost,
    repetitions,
    validation_cost_of,
)

MAX_BYTES: Final = 256 * 1024
"""A schema is sent to every client that lists the tools."""
MAX_DEPTH: Final = 64
BACKTRACK_LIMIT: Final = 30_000
"""Steps of one match, each of which may go through the text (see `validation_cost`).

Patterns without look-around or back-references run in linear time.
"""

PATTERN_OPTIONS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)

_DEFAULT_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DIALECTS: Final[Mapping[str, type[jsonschema_rs.Validator]]] = {
    _DEFAULT_DIALECT: jsonschema_rs.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
}
"""The validators of the dialects that we speak, by the URI of the metaschema."""


def dialect_of(schema: JsonObject) -> str | None:
    """Return the dialect that `$schema` names; None for one that we do not speak."""
    uri = schema.get("$schema", _DEFAULT_DIALECT)
    # draft-07's own URI ends with an empty fragment; authors write it with and without.
    uri = uri.removesuffix("#") if isinstance(uri, str) else None
    return uri if uri in DIALECTS else None


def plain(schema: JsonObject) -> JsonObject | SchemaError:
    """Return a copy made of bare JSON types, as the engine and the wire take it; or the problem.

    Interpolated strings become plain ones.
    """
    try:
        data = orjson.dumps(schema)
    except (TypeError, RecursionError) as error:
        return SchemaError(path=(), message=f"cannot be written as JSON: {error}")
    if len(data) > MAX_BYTES:
        return SchemaError(path=(), message=f"is larger than {MAX_BYTES // 1024} KiB")
    copy: JsonObject = orjson.loads(data)
    # Brackets bound the depth, so that an ordinary schema is not walked.
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and is_deeper(copy, than=MAX_DEPTH):
        return SchemaError(path=(), message=f"is nested more than {MAX_DEPTH} deep")
    return copy


def is_deeper(value: Json, *, than: int) -> bool:
    """Whether lists and objects are nested in `value` more than so many levels."""
    if isinstance(value, dict):
        return than == 0 or any(is_deeper(member, than=than - 1) for member in value.values())
    if isinstance(value, list):
        return than == 0 or any(is_deeper(item, than=than - 1) for item in value)
    return False


def check_schema(schema: JsonObject) -> ValidationCost | list[SchemaError]:
    """The cost of validating with a plain schema, or its problems: all that the first failing rung finds.

    1. `$schema` names a dialect that we speak.
    2. The schema fits that dialect's metaschema.
    3. Each reference resolves within the schema, and each pattern compiles.
    4. The work is bounded.
    """
    dialect = dialect_of(schema)
    if dialect is None:
        return [_unknown_dialect(schema["$schema"])]
    if misfits := list(_metaschema_errors(schema, dialect)):
        return misfits
    if not _mentions(schema, COSTING):  # as most: it has neither references nor patterns
        return ValidationCost()
    nodes, schema_problems = _walked(schema, dialect)
    if schema_problems:
        return schema_problems
    cost = validation_cost_of(nodes, id(schema))
    return list(_cost_problems(cost)) or cost


_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def _unknown_dialect(uri: Json) -> SchemaError:
    near = get_close_matches(str(uri), DIALECTS, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; use one of {', '.join(DIALECTS)}"
    return SchemaError(path=("$schema",), message=f"names a dialect that is not supported{hint}")


def _metaschema_errors(schema: JsonObject, dialect: str) -> Iterator[SchemaError]:
    for error in _metaschema_validator(dialect).iter_errors(schema):
        yield from describe(error, {}, noun="keyword")


@cache
def _metaschema_validator(uri: str) -> jsonschema_rs.Validator:
    """The engine has the metaschemas of its dialects within itself."""
    return DIALECTS[uri]({"$ref": uri}, validate_formats=False, offline=True)


def _mentions(value: Json, keywords: frozenset[str]) -> bool:
    """Whether one of these keywords stands anywhere, be it as the name of something else."""
    if isinstance(value, dict):
        return not keywords.isdisjoint(value) or any(_mentions(member, keywords) for member in value.values())
    return isinstance(value, list) and any(_mentions(item, keywords) for item in value)


def _walked(schema: JsonObject, dialect: str) -> tuple[dict[int, SchemaNode], list[SchemaError]]:
    """Every schema in it, whether or not validation reaches it, and the problems of references and patterns."""
    start: DocumentPath = ()
    waiting = deque([(start, schema, _references_of(schema, dialect))])
    # By identity, since equal schemas at two places are two; all of them live as long as the whole.
    nodes = {id(schema): SchemaNode(schema)}
    schema_problems: list[SchemaError] = []
    while waiting:
        path, current, references = waiting.popleft()
        schema_problems += _pattern_problems(path, current)
        # Before references: a problem is reported where it is written, not where a reference leads to it.
        for step, member in subschemas(current):
            if step[0] not in _NOT_APPLIED:
                nodes[id(current)].edges.append((_way(step), id(member)))
            if id(member) not in nodes:
                nodes[id(member)] = SchemaNode(member)
                waiting.append(((*path, *step), member, references and references.within(member)))
        for keyword in _REFERENCES:
            if references is not None and isinstance(reference := current.get(keyword), str):
                if (found := references.target(reference)) is None:
                    schema_problems.append(SchemaError(path=(*path, keyword), message=_unresolved(reference)))
                    continue
                target, beyond = found
                # true and false are schemas, too; they lead nowhere and cost nothing.
                if isinstance(target, dict):
                    nodes[id(current)].edges.append((keyword, id(target)))
                    if id(target) not in nodes:
                        nodes[id(target)] = SchemaNode(target)
                        waiting.append(((*path, keyword), target, beyond))
    return nodes, schema_problems


def _references_of(schema: JsonObject, dialect: str) -> SchemaReferences | None:
    return references_of(schema, dialect=dialect) if _mentions(schema, frozenset(_REFERENCES)) else None


def _way(step: DocumentPath) -> str:
    """The keyword by which a member applies; until 2019-09 a list of `items` is what `prefixItems` is today."""
    return "prefixItems" if step[0] == "items" and len(step) > 1 else str(step[0])


def _cost_problems(cost: ValidationCost) -> Iterator[SchemaError]:
    if cost.in_place > MAX_FAN_OUT:
        yield SchemaError(path=(), message=f"applies {cost.in_place} schemas to one place, more than {MAX_FAN_OUT}")
    for pattern in sorted(cost.costly_names):
        yield SchemaError(path=(), message=f"the pattern {shown(pattern)} of member names is too expensive to match")


def _unresolved(reference: str) -> str:
    if reference.startswith("#"):
        return f"refers to {reference}, which the schema does not contain"
    return f"can only refer to places in the schema itself (#/…), because references are not fetched: {reference}"


_NOT_APPLIED: Final = frozenset({"$defs", "definitions", "contentSchema"})
"""Keywords whose schemas apply to nothing by themselves."""


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
"""`[[:alpha:]]`: to ECMA-262 a class of the characters `[:alph`, and no one means that."""


@lru_cache(maxsize=4096)
def is_pattern_usable(pattern: str) -> bool:
    """Whether the engine takes this ECMA-262 pattern, and promises bounds for it."""
    if repetitions(pattern) > MAX_REPETITIONS or _POSIX_CLASS.search(pattern):
        return False
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=PATTERN_OPTIONS)
    except jsonschema_rs.ValidationError:
        return False
    return True


def _refused(pattern: str) -> str:
    if (times := repetitions(pattern)) > MAX_REPETITIONS:
        return f"the pattern {shown(pattern)} repeats {times} times, more than {MAX_REPETITIONS}; use `maxLength`"
    return f"the pattern {shown(pattern)} is not a supported ECMA-262 regular expression"
