"""The name and the extras of the distribution."""

from typing import Final

DISTRIBUTION: Final = "mcp-gateway-daemon"
EXTRAS: Final = {
    "auth": "'pyjwt[crypto]'",
    "dev": "rich",
    "duckdb": "duckdb",
    "mysql": "'sqlalchemy[asyncio]' asyncmy",
    "otel": "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
    "redis": "redis",
    "sql": "'sqlalchemy[asyncio]' aiosqlite asyncpg",
}
"""The packages of each extra, quoted for a shell."""


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return f"pip install {EXTRAS[extra]}"
