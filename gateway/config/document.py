"""The whole file, and the sections that an included file may have."""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator

from gateway.config.backends import Connection
from gateway.config.base import Model, unsupported
from gateway.config.definitions import Defaults
from gateway.config.primitives import Prompt, Resource, Tool
from gateway.config.server import Auth, Limits, Listen, Server


class Fragment(Model):
    """What every file may hold: the main one, and those that it includes."""

    include: list[str] = []
    """Globs of YAML files, relative to this one."""
    plugins: list[str] = []
    """Directories of Python files."""
    connections: dict[str, Connection] = {}
    tools: dict[str, Tool] = {}
    resources: dict[str, Resource] = {}
    prompts: dict[str, Prompt] = {}
    prompt_files: list[str] = []
    """Globs of Markdown files with front matter."""


class Document(Fragment):
    """The main file, and what loading it and its includes merges into."""

    version: Literal[1] = 1
    server: Server = Server()
    listen: Listen = Listen()
    auth: Annotated[Auth | None, BeforeValidator(unsupported)] = None
    limits: Limits = Limits()
    defaults: Defaults = Defaults()


MAIN_FILE_ONLY: Final = frozenset(Document.model_fields) - frozenset(Fragment.model_fields)
"""Sections that a file may hold only if it is not included by another."""
