"""The environment variables that a server needs from the client that starts it. Clients pass on only a few."""

import os
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Final

import msgspec

from gateway.cli.dry_run import dry_run
from gateway.config.definition_source import load_definitions
from gateway.config.loader import LoadedConfig
from gateway.config.models.definitions import Prompt, Resource, Tool
from gateway.config.models.document import Document
from gateway.config.reading.interpolation import Variable
from gateway.config.secrets.literal_secrets import SECRET_KEY
from gateway.config.settings import Settings
from gateway.errors import ConfigError

_PASSED_ON: Final = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"})
"""Variables that clients pass on, according to the official SDKs."""


class Prerequisites(msgspec.Struct, frozen=True, kw_only=True):
    loaded: LoadedConfig
    variables: Mapping[str, Variable]
    unset: tuple[str, ...]
    """Required variables that are not set here. If there are any, the file was not checked."""

    @property
    def name(self) -> str:
        return self.loaded.redactor.text(self.loaded.document.server.name)

    @property
    def views(self) -> Collection[str]:
        return self.loaded.document.views.keys()


def prerequisites_of(settings: Settings) -> Prerequisites:
    """Find the variables that the file reads.

    Raises:
        ConfigError: the file cannot be read, or cannot be served although all variables are set.
    """
    loaded = load_definitions(settings.config)
    needed = (name for name, variable in loaded.variables.items() if variable.is_needed)
    # Clients set variables themselves, so a variable that is missing here can be set there.
    unset = tuple(name for name in needed if name not in os.environ)
    if not unset:
        with dry_run(settings) as dry:
            loaded = dry.loaded
    variables = dict(loaded.variables)
    for name, variable in _named_by_definitions(loaded.document):
        variables.setdefault(name, variable)
    return Prerequisites(
        loaded=loaded,
        variables={name: variable for name, variable in variables.items() if name not in _PASSED_ON},
        unset=unset,
    )


def complete_prerequisites_of(settings: Settings) -> Prerequisites:
    """Find the variables of a file that must be checked here.

    Raises:
        ConfigError: a variable is not set, or the file cannot be served.
    """
    prerequisites = prerequisites_of(settings)
    if prerequisites.unset:
        message = f"needs environment variables that are not set: {', '.join(prerequisites.unset)}"
        raise ConfigError.at(str(settings.config), message)
    return prerequisites


def _named_by_definitions(document: Document) -> Iterator[tuple[str, Variable]]:
    """Yield the variables of `requires.env`, and those of `inherit_env` that are set here."""
    definitions = chain[Tool | Resource | Prompt](
        document.tools.values(), document.resources.values(), document.prompts.values()
    )
    for definition in definitions:
        names = list(definition.requires.env)
        if not isinstance(definition, Prompt) and definition.shell is not None:
            names += [name for name in definition.shell.inherit_env if name in os.environ]
        for name in names:
            yield name, Variable(is_needed=False, is_secret=SECRET_KEY.search(name) is not None)
