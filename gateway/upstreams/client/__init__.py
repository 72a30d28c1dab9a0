"""MCP client for upstream servers over Streamable HTTP, HTTP+SSE and stdio."""
