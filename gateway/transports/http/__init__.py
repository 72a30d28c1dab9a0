"""HTTP handling that is independent of MCP: request checks, proxy headers, quotas and the admin API."""
