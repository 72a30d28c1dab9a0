"""Models of definitions that come from upstreams instead of files."""

import msgspec
from pydantic import InstanceOf

from gateway.catalog.primitives import Completer
from gateway.config.models.definitions import Prompt, Resource, Tool
from gateway.executors.invocation import Executor
from gateway.json_types import JsonObject


class RelayBackend(msgspec.Struct, frozen=True, kw_only=True):
    """Backend of a definition that an upstream serves."""

    server: str
    definition: JsonObject
    """The definition in the format of MCP 2026-07-28, with all members that the upstream sent."""
    executor: Executor
    completers: dict[str, Completer] = {}
    validates: bool = True
    """Whether arguments are validated before the call is sent to the upstream."""
    name_in_app: str = ""
    """Name of the tool in the upstream's pages (MCP Apps), or "" if pages cannot call it."""


class RelayedTool(Tool):
    upstream: InstanceOf[RelayBackend]

    @property
    def backend(self) -> str:
        return "upstream"


class RelayedResource(Resource):
    upstream: InstanceOf[RelayBackend]

    @property
    def backend(self) -> str:
        return "upstream"


class RelayedPrompt(Prompt):
    upstream: InstanceOf[RelayBackend]

    @property
    def backend(self) -> str:
        return "upstream"


def relayed_of(config: Tool | Resource | Prompt) -> RelayBackend | None:
    return config.upstream if isinstance(config, RelayedTool | RelayedResource | RelayedPrompt) else None
