"""The MCP clients: the entry that each expects in its configuration file, and the file's notation."""
