"""The tool annotations: their keys in the configuration, and their names in MCP."""

from collections.abc import Mapping
from typing import Final, Literal

from gateway.config.models.base import Flag, Model

ToolHint = Literal["read_only", "destructive", "idempotent", "open_world"]
HINTS: Final[Mapping[str, str]] = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""Key → name in MCP."""


class ToolAnnotations(Model):
    """Hints for the client about the effects of a call."""

    title: str | None = None
    """Display name. The tool's `title` takes precedence."""
    read_only: Flag | None = None
    """The tool does not change anything."""
    destructive: Flag | None = None
    """The tool can destroy data. Only meaningful if it is not read-only."""
    idempotent: Flag | None = None
    """Repeating a call with the same arguments has no further effect."""
    open_world: Flag | None = None
    """The tool interacts with systems outside this one."""
