"""The environment variables that a server needs from the client that starts it. Clients pass on only a few."""

import os
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from gateway.config.loader import LoadedConfig
from gateway.config.models.definitions import Prompt, Resource, Tool
from gateway.config.models.document import Document
from gateway.config.reading.interpolation import Variable
from gateway.config.secrets.literal_secrets import SECRET_KEY

_PASSED_ON: Final = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"})
"""Variables that clients pass on, according to the official SDKs."""


def variables_of(loaded: LoadedConfig) -> Mapping[str, Variable]:
    """Return the variables that the file reads, and those that its definitions name."""
    variables = dict(loaded.variables)
    for name, variable in _named_by_definitions(loaded.document):
        variables.setdefault(name, variable)
    return {name: variable for name, variable in variables.items() if name not in _PASSED_ON}


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
