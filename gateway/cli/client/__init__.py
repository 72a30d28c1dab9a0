"""Clients for MCP, in this process or over HTTP, and for the admin API of a running daemon."""
