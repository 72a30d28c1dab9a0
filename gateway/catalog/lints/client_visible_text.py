"""Collects the texts of a document that clients and their models see, each with its place. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final

import msgspec
from pydantic import BaseModel

from gateway.config.models.definition_keys import Definition
from gateway.config.models.definitions import Prompt, Tool
from gateway.config.models.field_use import Use, use_of
from gateway.config.models.server import Server
from gateway.json_types import DocumentPath, Json, JsonObject


class ClientVisibleText(msgspec.Struct, frozen=True, kw_only=True):
    path: DocumentPath
    text: str
    role: Use


_LINTED: Final = frozenset({Use.NAME, Use.DESCRIPTION, Use.BODY})
_WIRE: Final = {"description": "description", "input": "inputSchema", "input_schema": "inputSchema"}


def texts_of_server(config: Server) -> Iterator[ClientVisibleText]:
    """Yield the texts of the section `server`, at paths below it."""
    yield from _of_model(config, ())


def texts_of_definition(config: Definition, compiled: JsonObject | None, *, name: str) -> Iterator[ClientVisibleText]:
    """Yield the texts of a definition, at paths below it, then those of its plugin: docstring, schemas of the function.

    `compiled` is its wire form, if it is served.
    """
    yield ClientVisibleText(path=(), text=name, role=Use.NAME)
    yield from _of_model(config, ())
    if compiled is not None and isinstance(config, Tool | Prompt) and config.python is not None:
        said = _said_by(config) if isinstance(config, Tool) else config.model_fields_set
        yield from _derived(compiled, ("python",), said=said)


def _of_model(config: BaseModel, path: DocumentPath) -> Iterator[ClientVisibleText]:
    """Yield the texts of the fields that are declared as ones that models or people read, where they were written."""
    given = config.model_fields_set
    for name, key, use in _fields(type(config)):
        if name not in given:
            continue
        value = getattr(config, name)
        if use in _LINTED:
            yield from _texts(value, (*path, key), use)
        elif isinstance(value, BaseModel):
            yield from _of_model(value, (*path, key))


@cache
def _fields(model: type[BaseModel]) -> tuple[tuple[str, str, Use], ...]:
    """Attribute, key and use of the fields that may hold such texts: a file has thousands of values of one model."""
    fields = ((name, field, use_of(field.metadata, default=Use.PLAIN)) for name, field in model.model_fields.items())
    return tuple((name, field.alias or name, use) for name, field, use in fields if use in {*_LINTED, Use.PLAIN})


def _said_by(config: Tool) -> set[str]:
    """Members of the wire form that come from the file and not from the function."""
    said = {wire for key, wire in _WIRE.items() if key in config.model_fields_set}
    return said | {"outputSchema"} if config.output is not None and config.output.schema_ is not None else said


def _derived(definition: Mapping[str, Json], path: DocumentPath, *, said: Iterable[str]) -> Iterator[ClientVisibleText]:
    for key in ("description", "inputSchema", "outputSchema", "arguments"):
        if key not in said:
            for text in _texts(definition.get(key), path, Use.DESCRIPTION):
                yield ClientVisibleText(path=path, text=text.text, role=text.role)


def _texts(value: object, path: DocumentPath, role: Use) -> Iterator[ClientVisibleText]:
    match value:
        case str():
            yield ClientVisibleText(path=path, text=value, role=role)
        case dict():
            for key, member in value.items():
                yield ClientVisibleText(path=(*path, key), text=key, role=Use.NAME)
                yield from _texts(member, (*path, key), role)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _texts(item, (*path, index), role)
        case BaseModel():
            for name in type(value).model_fields:
                if name in value.model_fields_set:
                    key = type(value).model_fields[name].alias or name
                    yield from _texts(getattr(value, name), (*path, key), role)
