"""The MCP clients: the entry that each expects in its configuration file, the file's notation, and its change."""
