"""Definitions of upstreams. These models are not read from a file, and not validated."""

import msgspec
from pydantic import InstanceOf

from gateway.catalog.primitives import Completer
from gateway.config.models.definitions import Prompt, Resource, Tool
from gateway.executors.invocation import Executor
from gateway.json_types import JsonObject


class RelayBackend(msgspec.Struct, frozen=True, kw_only=True):
    """The backend of an upstream's definition."""

    server: str
    """Key of the upstream in the file."""
    definition: JsonObject
    """The wire form of 2026-07-28, with all members that the upstream sent."""
    executor: Executor
    completers: dict[str, Completer] = {}
    validates: bool = True
    """Whether the gateway validates arguments before it calls the upstream."""
    name_in_app: str = ""
    """Name that pages of the upstream use for the tool (MCP Apps), or "" if they cannot call it."""

    def __repr__(self) -> str:
        """Return the parts that determine the definition's version. The executor differs between processes."""
        return f"Relayed({self.server!r}, {self.definition!r}, {self.validates!r})"


class RelayedTool(Tool):
    """A tool of an upstream."""

    upstream: InstanceOf[RelayBackend]

    @property
    def backend(self) -> str:
        return "upstream"


class RelayedResource(Resource):
    """A resource or resource template of an upstream."""

    upstream: InstanceOf[RelayBackend]

    @property
    def backend(self) -> str:
        return "upstream"


class RelayedPrompt(Prompt):
    """A prompt of an upstream."""

    upstream: InstanceOf[RelayBackend]

    @property
    def backend(self) -> str:
        return "upstream"


def relayed_of(config: Tool | Resource | Prompt) -> RelayBackend | None:
    """Return the backend of an upstream's definition, or None for other definitions."""
    return config.upstream if isinstance(config, RelayedTool | RelayedResource | RelayedPrompt) else None
