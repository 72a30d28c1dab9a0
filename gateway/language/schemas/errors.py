"""Error messages for values that do not match their schema."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import orjson
from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from gateway import exact_json
from gateway.config.diagnostics.near_misses import nearest
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.schemas.keywords import properties_of

MAX_MESSAGE: Final = 300
_MAX_SHOWN: Final = 60
_MAX_CHOICES: Final = 20


class SchemaError(msgspec.Struct, frozen=True, kw_only=True):
    path: DocumentPath
    message: str

    @property
    def pointer(self) -> str:
        """JSON Pointer (RFC 6901), shortened and escaped for display."""
        return "".join(f"/{_readable(str(step))}" for step in self.path)

    def __str__(self) -> str:
        return f"{self.pointer} {self.message}".lstrip()


def _readable(step: str) -> str:
    # RFC 6901 §3. Replace `~` first, so that `~1` is not escaped again.
    step = step.replace("~", "~0").replace("/", "~1")
    if not step.isprintable():
        step = orjson.dumps(step).decode()[1:-1]
    return step if len(step) <= _MAX_SHOWN else f"{step[:_MAX_SHOWN]}…"


def describe(error: ValidationError, schema: JsonObject, *, noun: str) -> Iterator[SchemaError]:
    """Convert a jsonschema-rs error to messages. `noun` is the word for a member of the value, such as `argument`."""
    path = tuple(error.instance_path)
    member = noun if not path else "member"
    match error.kind:
        case Kind.AnyOf(branches) | Kind.OneOfNotValid(branches):
            yield from _describe_branches(error, branches, schema, noun=noun)
        case Kind.AdditionalProperties(unexpected) | Kind.UnevaluatedProperties(unexpected):
            known = _known_members(error, schema)
            for name in unexpected[:_MAX_CHOICES]:
                yield _error((*path, name), f"is not a known {member}{_meant(name, known)}")
        case Kind.FalseSchema() if error.schema_path[-1:] == ["additionalProperties"]:
            yield _error(path, f"accepts no {member}s")
        case Kind.Required(name):
            yield _error((*path, name), "is required")
        case kind:
            words = _WORDS.get(type(kind))
            yield _error(path, words(kind, error.instance) if words else error.message)


def shown(value: Json) -> str:
    try:
        text = exact_json.dumps(value).decode()
    except TypeError:
        text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _error(path: DocumentPath, message: str) -> SchemaError:
    return SchemaError(path=path, message=message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…")


def _describe_branches(
    error: ValidationError, branches: Sequence[Sequence[ValidationError]], schema: JsonObject, *, noun: str
) -> Iterator[SchemaError]:
    path = tuple(error.instance_path)
    near = [branch for branch in branches if not any(_is_wrong_type_at(path, diagnostic) for diagnostic in branch)]
    # Describe only alternatives of the right type. For an object, `string or object` has one such alternative.
    if len(near) == 1:
        for diagnostic in near[0]:
            yield from describe(diagnostic, schema, noun=noun)
    elif not near and (types := _wanted_types(path, branches)):
        yield _error(path, f"must be {types}, was {shown(error.instance)}")
    else:
        reasons = [str(next(describe(branch[0], schema, noun=noun))) for branch in near[:3] if branch]
        yield _error(path, f"matches none of the {len(branches)} alternatives: {'; or '.join(reasons)}")


def _is_wrong_type_at(path: DocumentPath, error: ValidationError) -> bool:
    return isinstance(error.kind, Kind.Type) and tuple(error.instance_path) == path


def _wanted_types(path: DocumentPath, branches: Sequence[Sequence[ValidationError]]) -> str:
    kinds = [diagnostic.kind for branch in branches for diagnostic in branch if _is_wrong_type_at(path, diagnostic)]
    return _types([name for kind in kinds if isinstance(kind, Kind.Type) for name in kind.types])


def _known_members(error: ValidationError, schema: JsonObject) -> list[str]:
    parent: Json = schema
    for step in error.schema_path[:-1]:
        try:
            parent = parent[step]
        except (KeyError, IndexError, TypeError):
            return []
    return list(properties_of(parent)) if isinstance(parent, dict) else []


def _meant(given: Json, choices: Sequence[Json]) -> str:
    # difflib takes quadratic time, so only compare short values.
    if not isinstance(given, str) or len(given) > _MAX_SHOWN:
        return ""
    near = nearest(given, [choice for choice in choices if isinstance(choice, str)])
    return "" if near is None else f" (did you mean {shown(near)}?)"


_TYPE_WORDS: Final = {
    "array": "an array", "boolean": "true or false", "integer": "an integer", "null": "null", "number": "a number",
    "object": "an object", "string": "a string",
}  # fmt: skip

_FORMAT_WORDS: Final = {
    "date": "a date such as 2025-01-31",
    "time": "a time such as 12:30:00Z",
    "date-time": "a date and time such as 2025-01-31T12:30:00Z",
    "email": "an email address",
    "uuid": "a UUID",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
    "uri": "an absolute URI",
}


def _types(names: Sequence[str]) -> str:
    distinct = sorted(dict.fromkeys(names), key=lambda name: name == "null")
    return " or ".join(_TYPE_WORDS.get(name, name) for name in distinct)


def _enum(kind: Kind.Enum, instance: Json) -> str:
    options = ", ".join(map(shown, kind.options[:_MAX_CHOICES]))
    more = ", …" if len(kind.options) > _MAX_CHOICES else ""
    return f"must be one of {options}{more}, was {shown(instance)}{_meant(instance, kind.options)}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_WORDS: Final[dict[type[Kind], Callable[[Any, Json], str]]] = {
    Kind.Type: lambda kind, was: f"must be {_types(kind.types)}, was {shown(was)}",
    Kind.Enum: _enum,
    Kind.Constant: lambda kind, was: f"must be {shown(kind.expected_value)}, was {shown(was)}",
    Kind.Minimum: lambda kind, was: f"must be at least {kind.limit}, was {shown(was)}",
    Kind.Maximum: lambda kind, was: f"must be at most {kind.limit}, was {shown(was)}",
    Kind.ExclusiveMinimum: lambda kind, was: f"must be greater than {kind.limit}, was {shown(was)}",
    Kind.ExclusiveMaximum: lambda kind, was: f"must be less than {kind.limit}, was {shown(was)}",
    Kind.MultipleOf: lambda kind, was: f"must be a multiple of {kind.multiple_of}, was {shown(was)}",
    Kind.MinLength: lambda kind, was: f"must have at least {_counted(kind.limit, 'character')}, was {shown(was)}",
    Kind.MaxLength: lambda kind, was: f"must have at most {_counted(kind.limit, 'character')}, had {len(was)}",
    Kind.MinItems: lambda kind, was: f"must have at least {_counted(kind.limit, 'item')}, had {len(was)}",
    Kind.MaxItems: lambda kind, was: f"must have at most {_counted(kind.limit, 'item')}, had {len(was)}",
    Kind.MinProperties: lambda kind, was: f"must have at least {_counted(kind.limit, 'member')}, had {len(was)}",
    Kind.MaxProperties: lambda kind, was: f"must have at most {_counted(kind.limit, 'member')}, had {len(was)}",
    Kind.Pattern: lambda kind, was: f"must match the pattern {kind.pattern}, was {shown(was)}",
    Kind.BacktrackLimitExceeded: lambda _, was: f"is too complex to match its pattern, was {shown(was)}",
    Kind.Format: lambda kind, was: f"must be {_FORMAT_WORDS.get(kind.format, kind.format)}, was {shown(was)}",
    Kind.UniqueItems: lambda _, was: f"must not contain duplicate items, was {shown(was)}",
    Kind.Contains: lambda _, was: f"has too few or too many items that match `contains`, was {shown(was)}",
    Kind.Not: lambda kind, was: f"must not match {shown(kind.schema)}, was {shown(was)}",
    Kind.OneOfMultipleValid: lambda _, was: (
        f"must match exactly one alternative, but matches several, was {shown(was)}"
    ),
    Kind.FalseSchema: lambda _, was: f"is not allowed, was {shown(was)}",
    Kind.AdditionalItems: lambda kind, was: f"must have at most {_counted(kind.limit, 'item')}, had {len(was)}",
    Kind.PropertyNames: lambda kind, _: (
        f"has an invalid member name: {shown(kind.error.instance)} ({kind.error.message})"
    ),
}
