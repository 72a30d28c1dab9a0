"""Normalizes arguments: inserts defaults, and repairs values that models often send.

A string becomes an integer, number, boolean, array or object only if the schema rejects the string, and the string is
exactly the JSON of such a value. A number never becomes a string. Invalid null members are omitted.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Final

import jsonschema_rs
import orjson
from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from gateway import exact_json
from gateway.json_types import Json, JsonObject
from gateway.language.schemas.json_schema import Validator
from gateway.language.schemas.keywords import properties_of
from gateway.wire.jsonrpc import is_deeper

_MAX_ROUNDS: Final = 4
"""Maximum rounds of coercion. A quoted object can contain quoted values, which the next round finds."""
_MAX_DEPTH: Final = 64
EXACT_INTEGERS: Final = 2.0**53
"""Floats up to this value represent every integer exactly."""


def coerced(instance: Json, validator: Validator) -> Json:
    for _ in range(_MAX_ROUNDS):
        replacements = [
            (diagnostic.instance_path, value)
            for diagnostic in _leaves(validator.diagnostics(instance))
            if (value := _unquoted(diagnostic)) is not None
        ]
        if not replacements:
            break
        for path, value in replacements:
            instance = _replaced(instance, path, value)
    return instance


def without_nulls(instance: Json, validator: Validator) -> Json:
    """Return a copy without the null members that the schema does not allow."""
    paths = {
        tuple(diagnostic.instance_path)
        for diagnostic in _leaves(validator.diagnostics(instance))
        if diagnostic.instance is None and diagnostic.instance_path
    }
    if not paths:
        return instance
    instance = deepcopy(instance)
    for *steps, name in paths:
        parent = instance
        for step in steps:
            parent = parent[step]
        if isinstance(parent, dict):  # removing an item of a list would shift the items after it
            del parent[name]
    return instance


def with_integers(value: Json) -> Json:
    """Return a copy with integers instead of floats such as 1.0 (JSON Schema Validation §6.1.1)."""
    match value:
        case float() if value.is_integer() and abs(value) <= EXACT_INTEGERS:
            return int(value)
        case dict():
            return {name: with_integers(member) for name, member in value.items()}
        case list():
            return list(map(with_integers, value))
        case _:
            return value


def _leaves(diagnostics: Sequence[ValidationError]) -> Iterator[ValidationError]:
    for diagnostic in diagnostics:
        match diagnostic.kind:
            case Kind.AnyOf(context) | Kind.OneOfNotValid(context):
                for branch in context:
                    yield from _leaves(branch)
            case _:
                yield diagnostic


def _unquoted(diagnostic: ValidationError) -> Json:
    """Parse a rejected string as JSON. Return None if the schema would also reject the type of the parsed value."""
    text = diagnostic.instance
    if not isinstance(text, str) or text != text.strip():
        return None
    match diagnostic.kind:
        case Kind.Type(types):
            schema: dict[str, Json] = {"type": [*types]}
        case Kind.Enum(options):
            schema = {"enum": options}
        case _:
            return None
    value = _parsed(text)
    return value if not isinstance(value, str) and jsonschema_rs.is_valid(schema, value) else None


def _parsed(text: str) -> Json:
    try:
        # `exact_json` keeps integers of more than 64 bits exact.
        value = exact_json.loads(text)
    except orjson.JSONDecodeError:
        return None
    # The depth limit for messages does not cover JSON inside strings.
    return None if is_deeper(value, _MAX_DEPTH) else value


def _replaced(instance: Json, path: Sequence[str | int], value: Json) -> Json:
    instance = deepcopy(instance)
    parent = instance
    for step in path[:-1]:
        parent = parent[step]
    if isinstance(parent[path[-1]], str):  # another alternative can already have replaced the string
        parent[path[-1]] = value
    return instance


def with_defaults(schema: JsonObject, given: JsonObject) -> dict[str, Json]:
    """Return a copy of `given` with defaults for missing members. Ignore defaults in references and alternatives."""
    filled = dict(given)
    for name, member in properties_of(schema).items():
        if not isinstance(member, dict):
            continue
        if name not in filled and "default" in member:
            filled[name] = deepcopy(member["default"])
        # Defaults can be objects with missing members, so insert nested defaults last.
        if "properties" in member and isinstance(inner := filled.get(name), dict):
            filled[name] = with_defaults(member, inner)
    return filled


def defaults_in(schema: JsonObject) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Yield each default that `with_defaults` can insert, with the path of its member."""
    for name, member in properties_of(schema).items():
        if not isinstance(member, dict):
            continue
        if "default" in member:
            yield (name,), member["default"]
        yield from (((name, *path), default) for path, default in defaults_in(member))
