"""Coerces invalid values that models send: quoted numbers and objects, and null for omitted members.

A string becomes an integer, number, boolean, array or object only if validation failed there and the string is exactly
the JSON of such a value. A number never becomes a string.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Final

import orjson
from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from gateway import exact_json
from gateway.json_types import Json
from gateway.language.schemas.json_schema import Validator
from gateway.language.schemas.rules import is_deeper

_MAX_ROUNDS: Final = 4
"""Strings in a quoted object are found in the second round."""
_MAX_DEPTH: Final = 64


def coerced(instance: Json, validator: Validator) -> Json:
    """Return `instance` with wrongly quoted values parsed, or unchanged if there are none."""
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
    """Return `instance` without members whose null is invalid, or unchanged if there are none."""
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
        if isinstance(parent, dict):  # what a list has no item for would move the others
            del parent[name]
    return instance


def _leaves(diagnostics: Sequence[ValidationError]) -> Iterator[ValidationError]:
    for diagnostic in diagnostics:
        match diagnostic.kind:
            case Kind.AnyOf(context) | Kind.OneOfNotValid(context):
                for branch in context:
                    yield from _leaves(branch)
            case _:
                yield diagnostic


def _unquoted(diagnostic: ValidationError) -> Json:
    """Return the parsed value of an invalid string, if its type is expected. None otherwise."""
    text = diagnostic.instance
    if not isinstance(text, str) or text != text.strip():
        return None
    match diagnostic.kind:
        case Kind.Type(types):
            value = _parsed(text)
            return value if _types_of(value) & set(types) else None
        case Kind.Enum(options):
            value = _parsed(text)
            return (
                # The type is compared too, because True == 1 in Python.
                value if any(value == option and _types_of(value) & _types_of(option) for option in options) else None
            )
        case _:
            return None


def _parsed(text: str) -> Json:
    try:
        # `exact_json` keeps integers of more than 64 bits exact.
        value = exact_json.loads(text)
    except orjson.JSONDecodeError:
        return None
    # The depth limit of messages does not apply inside strings.
    return None if is_deeper(value, than=_MAX_DEPTH) else value


def _types_of(value: Json) -> set[str]:
    match value:
        # Before int, because bool is a subclass.
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            # JSON Schema Validation §6.1.1: a number with a zero fraction is an integer.
            return {"integer", "number"} if value.is_integer() else {"number"}
        case list():
            return {"array"}
        case dict():
            return {"object"}
        case _:
            return set()


def _replaced(instance: Json, path: Sequence[str | int], value: Json) -> Json:
    if not path:
        return value
    # Copies, so that the arguments of the caller do not change. `diagnostics` ignores large values.
    instance = deepcopy(instance)
    parent = instance
    for step in path[:-1]:
        parent = parent[step]
    if isinstance(parent[path[-1]], str):  # two alternatives may both have wanted it
        parent[path[-1]] = value
    return instance
