"""Authentication of callers by API key or access token, independent of MCP."""
