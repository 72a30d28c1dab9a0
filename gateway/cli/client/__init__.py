"""MCP clients that commands use: one in this process, and one for servers at a URL."""
