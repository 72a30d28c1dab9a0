"""The texts of a document that clients, and through them models, get to see; each with its place. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from pydantic import BaseModel

from gateway.catalog.primitives import Prompt, Tool
from gateway.config.document import Document
from gateway.config.primitives import Tool as ToolConfig
from gateway.config.problems import DocumentPath
from gateway.json_types import Json


class Role(Enum):
    """What a text is to who reads it."""

    NAME = auto()
    """By which something is called: of a definition, an input, a variable."""
    DESCRIPTION = auto()
    """What something is for. Models read it before anything is called."""
    BODY = auto()
    """What is asked for: a prompt's messages, a fixed answer, a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    path: DocumentPath
    text: str
    role: Role


_DESCRIBED: Final = ("title", "description", "meta", "annotations", "input", "input_schema", "arguments")
_BODIES: Final = ("content", "confirm", "messages", "text")
_WIRE: Final = {"description": "description", "input": "inputSchema", "input_schema": "inputSchema"}


def shown_texts(document: Document, *, tools: Mapping[str, Tool], prompts: Mapping[str, Prompt]) -> Iterator[ShownText]:
    """Every text of the document, then what plugins bring: their docstrings and the schemas of their functions."""
    server = document.server
    for key in ("name", "title", "description", "instructions"):
        if (text := getattr(server, key)) is not None:
            yield ShownText(path=("server", key), text=text, role=Role.DESCRIPTION)
    for section in ("tools", "resources", "prompts"):
        for name, config in getattr(document, section).items():
            yield from _of_definition(config, (section, name))
    for name, tool in tools.items():
        config = document.tools[name]
        if config.python is not None:
            yield from _derived(tool.definition, ("tools", name, "python"), said=_said_by(config))
    for name, prompt in prompts.items():
        if document.prompts[name].python is not None:
            said = document.prompts[name].model_fields_set
            yield from _derived(prompt.definition, ("prompts", name, "python"), said=said)


def _of_definition(config: BaseModel, path: DocumentPath) -> Iterator[ShownText]:
    yield ShownText(path=path, text=str(path[-1]), role=Role.NAME)
    for index, alias in enumerate(getattr(config, "aliases", ())):
        yield ShownText(path=(*path, "aliases", index), text=alias, role=Role.NAME)
    if (uri := getattr(config, "uri", None)) is not None:
        yield ShownText(path=(*path, "uri"), text=uri, role=Role.NAME)
    for keys, role in ((_DESCRIBED, Role.DESCRIPTION), (_BODIES, Role.BODY)):
        for key in keys:
            yield from _texts(getattr(config, key, None), (*path, key), role)
    output = getattr(config, "output", None)
    if output is not None:
        yield from _texts(output.schema_, (*path, "output", "schema"), Role.DESCRIPTION)
        yield from _texts(output.template, (*path, "output", "template"), Role.BODY)


def _said_by(config: ToolConfig) -> set[str]:
    """Members of the wire form that the file gives, not the function."""
    said = {wire for key, wire in _WIRE.items() if key in config.model_fields_set}
    return said | {"outputSchema"} if config.output is not None and config.output.schema_ is not None else said


def _derived(definition: Mapping[str, Json], path: DocumentPath, *, said: Iterable[str]) -> Iterator[ShownText]:
    for key in ("description", "inputSchema", "outputSchema", "arguments"):
        if key not in said:
            for text in _texts(definition.get(key), path, Role.DESCRIPTION):
                yield ShownText(path=path, text=text.text, role=text.role)


def _texts(value: object, path: DocumentPath, role: Role) -> Iterator[ShownText]:
    match value:
        case str():
            yield ShownText(path=path, text=value, role=role)
        case BaseModel():
            for name in type(value).model_fields:
                if name in value.model_fields_set:
                    key = type(value).model_fields[name].alias or name
                    yield from _texts(getattr(value, name), (*path, key), role)
        case Mapping():
            for key, member in value.items():
                yield ShownText(path=(*path, key), text=key, role=Role.NAME)
                yield from _texts(member, (*path, key), role)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _texts(item, (*path, index), role)
