"""Definitions that another server carries out: models of no file, which are built and not validated."""

import msgspec
from pydantic import InstanceOf

from gateway.catalog.primitives import Completer
from gateway.config.models.definitions import Prompt, Resource, Tool
from gateway.executors.invocation import Executor
from gateway.json_types import JsonObject


class RelayBackend(msgspec.Struct, frozen=True, kw_only=True):
    """The backend of a relayed definition."""

    server: str
    """The upstream's key in the file."""
    definition: JsonObject
    """The wire form, in that of 2026-07-28, with all members that are not ours to write."""
    executor: Executor
    completers: dict[str, Completer] = {}
    validates: bool = True
    """Whether arguments are held to the schema here already."""
    name_in_app: str = ""
    """The name by which the pages of its server call a tool (MCP Apps); empty if none may."""

    def __repr__(self) -> str:
        """Tell what decides about a version of the definition: the executor is another in each process."""
        return f"Relayed({self.server!r}, {self.definition!r}, {self.validates!r})"


class RelayedTool(Tool):
    """A tool of another server."""

    upstream: InstanceOf[RelayBackend]

    @property
    def backend(self) -> str:
        return "upstream"


class RelayedResource(Resource):
    """A resource or resource template of another server."""

    upstream: InstanceOf[RelayBackend]

    @property
    def backend(self) -> str:
        return "upstream"


class RelayedPrompt(Prompt):
    """A prompt of another server."""

    upstream: InstanceOf[RelayBackend]

    @property
    def backend(self) -> str:
        return "upstream"


def relayed_of(config: Tool | Resource | Prompt) -> RelayBackend | None:
    """The relayed backend of a definition; None of one that is carried out here."""
    return config.upstream if isinstance(config, RelayedTool | RelayedResource | RelayedPrompt) else None
