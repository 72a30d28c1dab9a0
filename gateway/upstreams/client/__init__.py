"""Sessions with MCP servers of either era and every transport."""
