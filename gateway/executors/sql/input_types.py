"""Binding types of inputs, and the conversion of values for drivers."""

import datetime as dt
import uuid
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

from gateway import exact_json
from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import FileArgument, json_with_files
from gateway.language.files.file_inputs import FILE


class InputType(Enum):
    PLAIN = auto()
    """Text, integers and booleans. The database infers the type."""
    NUMBER = auto()
    INTEGER = auto()
    DATE = auto()
    DATE_TIME = auto()
    UUID = auto()
    PRESENCE = auto()
    """Only whether there is a value."""
    FILE = auto()
    """Bytes."""
    ARRAY = auto()
    """An array outside of `IN`. The database infers whether it is an array or JSON."""
    JSON = auto()
    """An object."""


_BY_FORMAT: Final[Mapping[Json, InputType]] = {
    "date": InputType.DATE,
    "date-time": InputType.DATE_TIME,
    "uuid": InputType.UUID,
}
_BY_TYPE: Final[Mapping[Json, InputType]] = {
    FILE: InputType.FILE,
    "number": InputType.NUMBER,
    "integer": InputType.INTEGER,
    "object": InputType.JSON,
    "array": InputType.ARRAY,
}


def type_of(schema: Json) -> InputType:
    """Return the type of a JSON Schema. Null is ignored."""
    if not isinstance(schema, Mapping):
        return InputType.PLAIN
    said = schema.get("type")
    names = [name for name in said if name != "null"] if isinstance(said, list) else [said]
    if len(names) != 1:
        return InputType.PLAIN
    if names[0] in {"string", None} and (found := _BY_FORMAT.get(schema.get("format"))) is not None:
        return found
    return _BY_TYPE.get(names[0], InputType.PLAIN)


def items_of(schema: Json) -> JsonObject:
    items = schema.get("items") if isinstance(schema, Mapping) else None
    return items if isinstance(items, Mapping) else {}


class ValueForm(Enum):
    """The form of values for a driver."""

    NATIVE = auto()
    """Python objects."""
    SQLITE = auto()
    """Dates and UUIDs as text in the format of SQLite's functions, other values as Python objects."""
    TEXT = auto()
    """Scalars as JSON text, which the database parses, and arrays as lists."""


def bound_value(name: str, value: Json, kind: InputType, binding: ValueForm) -> Json:
    """Convert the value of an input for a driver.

    Raises:
        ExecutionError: the value cannot be bound.
    """
    if isinstance(value, FileArgument):
        return value.data
    if isinstance(value, dict | list | tuple):
        written = _written(name, value)
        is_list = binding is ValueForm.TEXT and not isinstance(value, dict) and kind is not InputType.JSON
        return json_with_files(value) if is_list else written
    if isinstance(value, str) and kind in _PARSERS:
        value = _parsed(name, value, kind, binding)
    elif isinstance(value, float) and kind is InputType.INTEGER and value.is_integer():
        value = int(value)  # 3.0 is an integer in JSON Schema
    if binding is ValueForm.TEXT and isinstance(value, int | float):
        value = exact_json.dumps(value).decode()
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ExecutionError(f"`{name}` is not valid text: it contains half of a surrogate pair") from error
    return value


def _written(name: str, value: Json) -> str:
    try:
        return exact_json.dumps(json_with_files(value)).decode()
    except TypeError as error:
        raise ExecutionError(f"`{name}` cannot be written as JSON: {error}") from error


def _parsed(name: str, value: str, kind: InputType, binding: ValueForm) -> Json:
    parse, sqlite_text = _PARSERS[kind]
    try:
        found = parse(value)
        return (
            found if binding is ValueForm.NATIVE else sqlite_text(found) if binding is ValueForm.SQLITE else str(found)
        )
    except (ValueError, OverflowError) as error:
        raise ExecutionError(f"`{name}` cannot be bound: {error}") from error


def _date_time(value: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(value.upper())  # RFC 3339 §5.6: `t` and `z` can be lower case
    # RFC 3339 §5.6 requires an offset. Without one, assume UTC, independent of the database.
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def _utc_text(value: Json) -> str:
    """Return a time in UTC, in the format of SQLite's functions."""
    return str(value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" "))


_PARSERS: Final[Mapping[InputType, tuple[Callable[[str], Json], Callable[[Json], str]]]] = {
    InputType.DATE: (dt.date.fromisoformat, str),
    InputType.DATE_TIME: (_date_time, _utc_text),
    InputType.UUID: (uuid.UUID, str),
}
