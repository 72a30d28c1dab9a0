"""Configuration files of MCP clients: the entry for each client, and editing the file."""
