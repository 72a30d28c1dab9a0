"""mcp-gateway: a daemon that turns one YAML file into an MCP server."""

from typing import Final

__version__: Final = "0.2.0"
