"""Rewords pydantic's validation errors for authors of configuration files, and drops follow-up errors."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.config.diagnostics.near_misses import did_you_mean, nearest
from gateway.config.models.base import ShortForm, alternatives
from gateway.config.models.interpolated_text import Interpolation, parts_of
from gateway.config.reading.nodes import Diagnostic, Invalid, MapItem, find, place_of
from gateway.json_types import DocumentPath, Json

_EXPECTED: Final = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "dict_type": "a mapping (`key: value`)",
    "list_type": "a list (`[…]`, or lines that start with `-`)",
    "tuple_type": "a list (`[…]`, or lines that start with `-`)",
}

_BARE: Final = {
    "true or false": re.compile("true|false"),
    "a whole number": re.compile("[-+]?[0-9]+"),
    "a number": re.compile(r"[-+]?[0-9]+(\.[0-9]+)?"),
}
"""Patterns of values that are text only because of their quotes, by the expected type."""

_SHORT_FORMS: Final = {
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
}
"""Maps the type in the schema of a short form to the words that describe it."""

_LIMITS: Final = {
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "too_short": "needs at least {min_length} item",
    "too_long": "must have at most {max_length} items",
}

_AT_KEY: Final = frozenset({"extra_forbidden", "missing", "nothing_given"})
"""Types of errors that point at the key instead of the value."""


def diagnostics_of(  # noqa: PLR0913 - what was validated, and where it was written
    error: ValidationError,
    *,
    model: object,
    data: Json,
    item: MapItem,
    path: DocumentPath,
    kinds: Container[str] | None = None,
) -> Iterator[Diagnostic]:
    """Yield each error with its location in the file. If `kinds` is given, skip errors of other types."""
    for details, steps, pointed in _located(error, data, model):
        # An unreadable value was reported when it was read.
        if (kinds is not None and details["type"] not in kinds) or isinstance(_at(data, pointed), Invalid):
            continue
        entry, node, _ = find(item.node, pointed, entry=item)
        is_at_key = pointed != steps or details["type"] in _AT_KEY
        place = entry.place if is_at_key and entry is not None else place_of(entry, node)
        yield Diagnostic(message=_message(details, model), path=(*path, *steps), place=place)


def without_errors(data: Json, error: ValidationError | None, model: object) -> Json:
    """Return a copy of a definition without its invalid values, or None if the definition cannot be repaired.

    Misspelt keys are corrected. Invalid inputs and arguments keep their names, because templates use the names.
    """
    paths = list(invalid_values(data))
    copied = _copied(data)
    for details, _, path in () if error is None else _located(error, data, model):
        if not path:
            return None
        if details["type"] == "extra_forbidden" and (meant := _meant(details, model)) is not None:
            holder = _at(copied, path[:-1])
            holder.setdefault(meant[-1], holder[path[-1]])
        paths.append(path)
    if any(path[0] in _NAMING or path in _INDISPENSABLE or path[-2:] == ("command", 0) for path in paths):
        return None
    # Remove nested values first.
    for path in sorted(set(paths), key=lambda path: [(isinstance(step, int), step) for step in path], reverse=True):
        _remove(copied, path)
    return copied


def _located(
    error: ValidationError, data: Json, model: object
) -> Iterator[tuple[ErrorDetails, DocumentPath, DocumentPath]]:
    """Yield each error, the path that is reported, and the path of the invalid value in `data`."""
    problems = error.errors(include_url=False)
    misspelt = {_meant(details, model) for details in problems if details["type"] == "extra_forbidden"}
    for details in problems:
        loc = details["loc"]
        if details["type"] == "missing":
            # The misspelt key is reported instead of the missing key.
            if loc in misspelt:
                continue
            loc = loc[:-1]
        steps = _written(loc, data)
        culprit = details.get("ctx", {}).get("culprit")
        yield details, steps, steps if culprit is None else (*steps, culprit)


_NAMED: Final = frozenset({"input", "arguments"})
"""Keys whose members are names that templates can use."""
_INDISPENSABLE: Final = frozenset((key,) for key in _NAMED)
_NAMING: Final = frozenset({"input_schema", "uri", "files", "root"})
"""Other keys that define names that templates can use."""


def invalid_values(data: Json, path: DocumentPath = ()) -> Iterator[DocumentPath]:
    """Yield the path of each value that could not be read."""
    if isinstance(data, Invalid):
        yield path
    elif isinstance(data, dict | list):
        for step, member in data.items() if isinstance(data, dict) else enumerate(data):
            yield from invalid_values(member, (*path, step))


def _copied(data: Json) -> Json:
    if isinstance(data, dict):
        return {key: _copied(member) for key, member in data.items()}
    return list(map(_copied, data)) if isinstance(data, list) else data


def _remove(data: Json, path: tuple[Any, ...]) -> None:
    if path[0] in _NAMED and len(path) > 1:
        data[path[0]][path[1]] = {"required": True}
        return
    holder = _at(data, path[:-1])
    if not isinstance(holder, list):
        del holder[path[-1]]
    elif holder[path[-1]] == "":  # the empty text was invalid too
        _remove(data, path[:-1])
    else:
        holder[path[-1]] = ""  # other items keep their positions


def _meant(details: ErrorDetails, model: object) -> tuple[int | str, ...] | None:
    """Return the path of an unknown key with the spelling corrected, or None if no known key is similar."""
    *above, key = details["loc"]
    owner = model_at(model, above)
    meant = nearest(str(key), keys_of(owner)) if owner else None
    return None if meant is None else (*above, meant)


def unknown_key(key: str, owner: type[BaseModel] | None) -> str:
    """Return the message for an unknown key. It suggests the intended key or parent, or lists all allowed keys."""
    if owner is None:
        return "unknown key"
    allowed = keys_of(owner)
    parts = [
        f"`{field.alias or name}`"
        for name, field in owner.model_fields.items()
        if any(key in keys_of(model) for model in models_of(owner, name))
    ]
    meant = f"; it belongs under {' or '.join(parts)}" if parts else did_you_mean(key, allowed)
    return f"unknown key{meant}" if meant else f"unknown key (allowed: {', '.join(allowed)})"


def expected(what: str, given: Json) -> str:
    """Return `expected …, got …`, with a fix if one is known."""
    message = f"expected {what}, got {_shown(given)}"
    if what.partition(",")[0] == "text" and isinstance(given, bool | int | float):
        return f"{message}; quote it"
    if what == "text" and given is None:
        return f'{message}; write "" for empty text'
    if isinstance(given, str) and (bare := _BARE.get(what)) is not None and bare.fullmatch(given):
        return f"{message}; remove the quotes"
    return message


def keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the keys of a model as written in files."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def models_of(owner: type[BaseModel], name: str) -> Iterator[type[BaseModel]]:
    """Yield the models that a field can contain."""
    for each, _ in alternatives(owner.model_fields[name].annotation):
        if isinstance(each, type) and issubclass(each, BaseModel):
            yield each


def _mapping(model: type[BaseModel] | None) -> str:
    """Return words such as "a mapping with keys such as `a` and `b`". Required keys are preferred."""
    fields = {} if model is None else model.model_fields
    keys = sorted(fields, key=lambda name: not fields[name].is_required())[:2]
    such_as = " and ".join(f"`{fields[name].alias or name}`" for name in keys)
    return f"a mapping with keys such as {such_as}" if such_as else "a mapping (`key: value`)"


def _short_form(annotation: object, loc: Iterable[int | str]) -> str:
    """Return words such as `text, or ` if the type at the path has a short form, otherwise ""."""
    metadata = (each for found in _annotations_at(annotation, loc) for _, said in alternatives(found) for each in said)
    schemas = (each.schema or {} for each in metadata if isinstance(each, ShortForm))
    words = (_SHORT_FORMS.get(str(schema["type"])) for schema in schemas if "type" in schema)
    return next((f"{word}, or " for word in words if word is not None), "")


def model_at(annotation: object, loc: Iterable[int | str]) -> type[BaseModel] | None:
    """Return the model at the location of a pydantic error, or None."""
    models = (each for candidate in _annotations_at(annotation, loc) for each, _ in alternatives(candidate))
    return next((each for each in models if isinstance(each, type) and issubclass(each, BaseModel)), None)


def _annotations_at(annotation: object, loc: Iterable[int | str]) -> list[object]:
    candidates = [annotation]
    for step in loc:
        below = [child for candidate in candidates for child in _children(candidate, step)]
        candidates = below or candidates  # a step without effect is the tag of a union
    return candidates


def _written(loc: Iterable[int | str], data: Json) -> DocumentPath:
    """Convert the location of a pydantic error to a path in `data`. Steps that do not exist in `data` are left out."""
    steps: list[str | int] = []
    for step in loc:
        is_key = isinstance(data, dict) and step in data
        is_index = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if is_key or is_index:
            data = data[step]
            steps.append(step)
    return tuple(steps)


def _at(data: Json, steps: DocumentPath) -> Json:
    for step in steps:
        data = data[step]
    return data


def _message(details: ErrorDetails, model: object) -> str:
    kind, loc = details["type"], details["loc"]
    if kind == "extra_forbidden":
        return unknown_key(str(loc[-1]), model_at(model, loc[:-1]))
    if kind == "missing":
        return f"needs `{loc[-1]}`"
    if kind == "literal_error":
        return _literal_message(details)
    if kind == "model_type" or kind in _EXPECTED:
        what = _EXPECTED.get(kind) or f"{_short_form(model, loc)}{_mapping(model_at(model, loc))}"
        return expected(what, details["input"])
    if kind in _LIMITS:
        return _LIMITS[kind].format_map(details.get("ctx", {}))
    return details["msg"].removeprefix("Value error, ")


def _literal_message(details: ErrorDetails) -> str:
    # Pydantic only provides text: `'a', 'b' or 'c'`.
    choices = re.findall(r"'([^']*)'", details["ctx"]["expected"]) or [details["ctx"]["expected"]]
    given = details["input"]
    meant = did_you_mean(given, choices) if isinstance(given, str) else ""
    listed = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    return f"expected {listed}, got {_shown(given)}{meant}"


def _shown(value: Json) -> str:
    if isinstance(value, str):
        is_secret = any(isinstance(part, Interpolation) and part.secret for part in parts_of(value))
        return "a text" if is_secret or len(value) > 40 or not value.isprintable() else f"the text '{value}'"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"the number {value}"
    if value is None:
        return "nothing"
    return "a mapping" if isinstance(value, Mapping) else "a list"


def _children(annotation: object, step: int | str) -> Iterator[object]:
    for each, _ in alternatives(annotation):
        origin, arguments = get_origin(each), get_args(each)
        if origin in {list, tuple} and isinstance(step, int):
            yield arguments[0]
        elif origin is dict and isinstance(step, str):
            yield arguments[1]
        elif isinstance(each, type) and issubclass(each, BaseModel):
            for name, field in each.model_fields.items():
                if step == (field.alias or name):
                    yield Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
