"""The identifiers of MCP's extensions that are served here."""

from typing import Final

SKILLS: Final = "io.modelcontextprotocol/skills"
"""SEP-2640; defined for 2026-07-28 and later."""

APPS: Final = "io.modelcontextprotocol/ui"
"""SEP-1865."""
