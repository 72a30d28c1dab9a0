"""MCP on standard input and output."""
