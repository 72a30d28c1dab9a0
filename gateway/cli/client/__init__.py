"""Clients of a gateway that commands use: MCP in this process or at a URL, and the admin API of a running daemon."""
