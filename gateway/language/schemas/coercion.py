"""Coerces what models write in place of a valid value, where a schema refuses it. Pure.

Models now and then quote a number or a whole object. A string is taken as an integer, number, boolean, array or object
only where validation failed and only if it is exactly the JSON of one; a number never becomes a string. And many send
null for a member that they leave out.
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
"""A string in an object in a string is found in the second round."""
_MAX_DEPTH: Final = 64


def coerced(instance: Json, validator: Validator) -> Json:
    """Return `instance` with its wrongly quoted values taken out of their quotes; itself if there are none."""
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
    """Return `instance` without the members whose null is refused; itself if there are none."""
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
    """The value that the offending string is JSON of, if a value of that type was wanted; None if not."""
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
                # Types are compared too, as True == 1 in Python.
                value if any(value == option and _types_of(value) & _types_of(option) for option in options) else None
            )
        case _:
            return None


def _parsed(text: str) -> Json:
    try:
        # `exact_json`: a quoted id of more than 64 bits must not become a float near it.
        value = exact_json.loads(text)
    except orjson.JSONDecodeError:
        return None
    # The limit of a message's depth has not seen what is inside a string.
    return None if is_deeper(value, than=_MAX_DEPTH) else value


def _types_of(value: Json) -> set[str]:
    match value:
        # Before int, of which it is a subclass.
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
    # What the caller sent stays as it was. `diagnostics` gives nothing for a large value, which bounds these copies.
    instance = deepcopy(instance)
    parent = instance
    for step in path[:-1]:
        parent = parent[step]
    if isinstance(parent[path[-1]], str):  # two alternatives may both have wanted it
        parent[path[-1]] = value
    return instance
