"""Collects the texts that clients and models see."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from pydantic import BaseModel

from gateway.config.models.definition_keys import Definition
from gateway.config.models.definitions import Prompt, Tool
from gateway.config.models.field_use import Use, use_of
from gateway.config.models.server import Server
from gateway.json_types import DocumentPath, Json, JsonObject

ClientVisibleText = tuple[DocumentPath, str, Use]

_LINTED: Final = frozenset({Use.NAME, Use.DESCRIPTION, Use.BODY})
_WIRE: Final = {"description": "description", "input": "inputSchema", "input_schema": "inputSchema"}


def texts_of_server(config: Server) -> list[ClientVisibleText]:
    return _of_model(config, ())


def texts_of_definition(config: Definition, compiled: JsonObject | None, *, name: str) -> list[ClientVisibleText]:
    """Return the texts of a definition, followed by the docstring and schemas of its function.

    `compiled` is the wire form, or None if the definition is not served.
    """
    texts: list[ClientVisibleText] = [((), name, Use.NAME), *_of_model(config, ())]
    if compiled is not None and isinstance(config, Tool | Prompt) and config.python is not None:
        said = _said_by(config) if isinstance(config, Tool) else config.model_fields_set
        texts += _derived(compiled, ("python",), said=said)
    return texts


def _of_model(config: BaseModel, path: DocumentPath) -> list[ClientVisibleText]:
    texts: list[ClientVisibleText] = []
    given = config.model_fields_set
    for name, key, use in _fields(type(config)):
        if name not in given:
            continue
        value = getattr(config, name)
        if use is not Use.PLAIN:
            _add(texts, value, (*path, key), use)
        elif isinstance(value, BaseModel):
            texts += _of_model(value, (*path, key))
    return texts


@cache
def _fields(model: type[BaseModel]) -> tuple[tuple[str, str, Use], ...]:
    """Return the attribute, key and use of each field with visible text."""
    fields = ((name, field, use_of(field.metadata, default=Use.PLAIN)) for name, field in model.model_fields.items())
    return tuple((name, field.alias or name, use) for name, field, use in fields if use in {*_LINTED, Use.PLAIN})


def _said_by(config: Tool) -> set[str]:
    """Return the members of the wire form that the file defines."""
    said = {wire for key, wire in _WIRE.items() if key in config.model_fields_set}
    return said | {"outputSchema"} if config.output is not None and config.output.schema_ is not None else said


def _derived(definition: Mapping[str, Json], path: DocumentPath, *, said: Iterable[str]) -> list[ClientVisibleText]:
    texts: list[ClientVisibleText] = []
    for key in ("description", "inputSchema", "outputSchema", "arguments"):
        if key not in said:
            _add(texts, definition.get(key), path, Use.DESCRIPTION)
    # The position in the plugin's code is unknown, so report all of them at `python`.
    return [(path, text, use) for _, text, use in texts]


def _add(texts: list[ClientVisibleText], value: object, path: DocumentPath, use: Use) -> None:
    """A list is passed along, because nested generators take twice as long."""
    if isinstance(value, str):
        texts.append((path, value, use))
    elif isinstance(value, dict):
        for key, member in value.items():
            below = (*path, key)
            texts.append((below, key, Use.NAME))
            _add(texts, member, below, use)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _add(texts, item, (*path, index), use)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            if name in value.model_fields_set:
                key = type(value).model_fields[name].alias or name
                _add(texts, getattr(value, name), (*path, key), use)
