"""Writes servers into the configuration files of MCP clients."""
