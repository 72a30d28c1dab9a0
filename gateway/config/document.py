"""The whole file, and the sections that an included file may have."""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from gateway.config.audit import Audit
from gateway.config.auth import Auth
from gateway.config.backends import Connection
from gateway.config.base import Model, typed_interpolation
from gateway.config.definitions import Defaults
from gateway.config.primitives import Prompt, Resource, Tool
from gateway.config.server import Limits, Listen, Server
from gateway.json_types import Json


class Fragment(Model):
    """What every file may hold: the main one, and those that it includes."""

    include: list[str] = []
    """Globs of YAML files, relative to this one."""
    plugins: list[str] = []
    """Directories of Python files."""
    connections: dict[str, Connection] = {}
    """What HTTP backends of one service share, by name."""
    tools: dict[str, Tool] = {}
    """What models can call, by name."""
    resources: dict[str, Resource] = {}
    """What clients can read, by name."""
    prompts: dict[str, Prompt] = {}
    """What users can choose, by name."""
    prompt_files: list[str] = []
    """Globs of Markdown files with front matter."""


def _is_no_flag(value: Json) -> Json:
    value = typed_interpolation(value)
    if isinstance(value, bool):  # which Python takes for 1
        raise PydanticCustomError("version", "expected 1")
    return value


class Document(Fragment):
    """The main file, and what loading it and its includes merges into."""

    version: Annotated[Literal[1], BeforeValidator(_is_no_flag)] = 1
    """Of the configuration language."""
    server: Server = Server()
    """How the server introduces itself."""
    listen: Listen = Listen()
    """Where and to whom it listens."""
    auth: Auth | None = None
    """Who may call."""
    audit: Audit | None = None
    """A log of who called what."""
    limits: Limits = Limits()
    """What it serves at the most."""
    defaults: Defaults = Defaults()
    """What tools, resources and prompts take when they say nothing."""


MAIN_FILE_ONLY: Final = frozenset(Document.model_fields) - frozenset(Fragment.model_fields)
"""Sections that a file may hold only if it is not included by another."""
