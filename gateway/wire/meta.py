"""Reserved keys of `_meta`, headers that mirror a modern request, and the title of a client.

See MCP 2026-07-28 basic/index, "General fields", and basic/transports/streamable-http, "Request metadata".
"""

from functools import lru_cache
from typing import Final

from gateway.json_types import JsonObject

META: Final = "_meta"
META_PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
META_CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
META_PROGRESS_TOKEN: Final = "progressToken"  # noqa: S105 - a key of `_meta`

# RFC 9110 §5.1: header names are case-insensitive. Transports use lower case.
HEADER_PROTOCOL_VERSION: Final = "mcp-protocol-version"
HEADER_METHOD: Final = "mcp-method"
HEADER_NAME: Final = "mcp-name"
HEADER_PARAM_PREFIX: Final = "mcp-param-"

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""RFC 5424 severities, least severe first."""


_MAX_LENGTH: Final = 60
"""The maximum length of a client's title, in characters."""


def title_of(client_info: JsonObject) -> str:
    """Return the client's name and version, or `unnamed`."""
    name, version = client_info.get("name"), client_info.get("version")
    return _title(name if isinstance(name, str) else "", version if isinstance(version, str) else "")


@lru_cache(maxsize=64)
def _title(name: str, version: str) -> str:
    return " ".join(filter(None, (name, version)))[:_MAX_LENGTH] or "unnamed"
