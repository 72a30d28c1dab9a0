"""What a definition is, as digests of all that it consists of. Imports no plugin, and knows no secret.

Taken from what is written, not from what it came to: `${env:NAME}` and `${file:/path}` stand for themselves, so that a
rotated secret or another machine changes nothing. Order, comments and layout of the files do not matter.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Final

from gateway.catalog.plugins.plugins import Plugins
from gateway.config.definitions import Definition
from gateway.config.loader import LoadedConfig
from gateway.config.primitives import CommandCompletion, Prompt, Resource, Tool
from gateway.json_types import Json

Name = tuple[str, str]
"""A section of the file, and a key in it."""

Pin = Mapping[str, str]
"""Part of a definition → SHA-256, for the parts that it has: its `definition`, the `connection` that it names, the
file's `defaults`, and the `code` of its plugins."""

Pins = Mapping[Name, Pin]

SECTIONS: Final = ("tools", "resources", "prompts")
INSTRUCTIONS: Final[Name] = ("server", "instructions")
"""Models read these as they read a description."""


def pins_of(loaded: LoadedConfig, plugins: Plugins) -> dict[Name, Pin]:
    """The pin of every definition of the file, and of the server's instructions. `plugins` have been opened."""
    document = loaded.document
    pins: dict[Name, Pin] = {}
    if document.server.instructions is not None:
        pins[INSTRUCTIONS] = {"definition": _digest(loaded.sources.written(INSTRUCTIONS))}
    defaults = loaded.sources.written(("defaults",))
    common = {"defaults": _digest(defaults)} if defaults else {}
    definitions: Iterable[Mapping[str, Tool | Resource | Prompt]] = (getattr(document, each) for each in SECTIONS)
    for section, named in zip(SECTIONS, definitions, strict=True):
        for name, config in named.items():
            pins[section, name] = {**common, **_pin(loaded, (section, name), config, plugins=plugins)}
    return pins


def _pin(loaded: LoadedConfig, name: Name, config: Tool | Resource | Prompt, *, plugins: Plugins) -> Pin:
    # Relative paths mean something else in a file that lies elsewhere.
    directory = os.path.relpath(loaded.sources.directory(name), loaded.root)
    parts = {"definition": _digest([loaded.sources.written(name), directory])}
    connection = None if isinstance(config, Prompt) or config.http is None else config.http.connection
    if connection is not None:
        parts["connection"] = _digest(loaded.sources.written(("connections", connection)))
    functions = sorted(_functions(config))
    if functions:
        parts["code"] = _digest([plugins.code_of(function) for function in functions])
    return parts


def _functions(config: Definition) -> Iterable[str]:
    """Every `module:callable` that the definition names."""
    if (python := getattr(config, "python", None)) is not None:
        yield python.call
    sources = [*getattr(config, "complete", {}).values()]
    sources += [argument.complete for argument in getattr(config, "arguments", {}).values()]
    for source in sources:
        if isinstance(source, CommandCompletion) and source.python is not None:
            yield source.python.call


def _digest(value: Json) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
