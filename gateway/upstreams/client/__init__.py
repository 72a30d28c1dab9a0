"""Sessions with MCP servers of either era, over stdio, Streamable HTTP or HTTP+SSE."""
