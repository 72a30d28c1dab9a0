"""Sessions with legacy and modern MCP servers over all transports."""
