"""Reserved keys of `_meta` and the header fields that mirror a modern request. Constants only.

MCP 2026-07-28 basic/index, "General fields"; basic/transports/streamable-http, "Request metadata".
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
META_PROGRESS_TOKEN: Final = "progressToken"  # noqa: S105 - no password, a key of `_meta`

# RFC 9110 §5.1: field names are case-insensitive. Bindings hand over header fields with names in lower case.
HEADER_PROTOCOL_VERSION: Final = "mcp-protocol-version"
HEADER_METHOD: Final = "mcp-method"
HEADER_NAME: Final = "mcp-name"
HEADER_PARAM_PREFIX: Final = "mcp-param-"

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""RFC 5424 severities, mildest first."""


_MAX_LENGTH: Final = 60
"""Characters of a client's name for itself, which it chooses freely."""


def title_of(client_info: JsonObject) -> str:
    """The name and version that the client gives itself; `unnamed` without."""
    name, version = client_info.get("name"), client_info.get("version")
    return _title(name if isinstance(name, str) else "", version if isinstance(version, str) else "")


@lru_cache(maxsize=64)
def _title(name: str, version: str) -> str:
    return " ".join(filter(None, (name, version)))[:_MAX_LENGTH] or "unnamed"
