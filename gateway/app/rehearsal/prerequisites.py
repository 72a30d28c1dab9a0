"""What whoever starts the server must hand it: clients pass on little of their own environment."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from gateway.app.rehearsal.rehearsal import rehearsed
from gateway.config.document import Document
from gateway.config.literal_secrets import SECRET_KEY
from gateway.config.loader import LoadedConfig, load
from gateway.config.primitives import Prompt, Resource, Tool
from gateway.config.reading.interpolation import Variable
from gateway.config.settings import Settings

_GIVEN: Final = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"})
"""Variables that every client hands on: those of the official SDKs' own clients, which others are built with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prerequisites:
    """The server's name, and the variables that it reads."""

    name: str
    variables: Mapping[str, Variable]
    unset: tuple[str, ...]
    """Those without which it does not start, and which are not set here either: the file was not checked, then."""


def prerequisites_of(settings: Settings) -> Prerequisites:
    """Read what the file asks of the environment.

    Raises:
        ConfigError: it cannot be read; or it cannot be served although all is set that it needs.
    """
    loaded = load(settings.config)
    needed = (name for name, variable in loaded.variables.items() if variable.is_needed)
    unset = tuple(name for name in needed if name not in os.environ)
    if not unset:
        with rehearsed(settings) as rehearsal:
            loaded = rehearsal.loaded
    variables = dict(loaded.variables)
    for name, variable in _from_elsewhere(loaded.document):
        variables.setdefault(name, variable)
    return Prerequisites(
        name=_name(loaded),
        variables={name: variable for name, variable in variables.items() if name not in _GIVEN},
        unset=unset,
    )


def _name(loaded: LoadedConfig) -> str:
    return loaded.redactor.text(loaded.document.server.name)


def _from_elsewhere(document: Document) -> Iterator[tuple[str, Variable]]:
    """What `requires.env` names; and what `inherit_env` does, if it is set here and commands therefore have it."""
    definitions = chain[Tool | Resource | Prompt](
        document.tools.values(), document.resources.values(), document.prompts.values()
    )
    for definition in definitions:
        names = list(definition.requires.env)
        if not isinstance(definition, Prompt) and definition.shell is not None:
            names += [name for name in definition.shell.inherit_env if name in os.environ]
        for name in names:
            yield name, Variable(is_needed=False, is_secret=SECRET_KEY.search(name) is not None)
