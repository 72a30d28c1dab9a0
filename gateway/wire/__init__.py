"""MCP messages in both directions: JSON-RPC, revisions, headers and request metadata. No I/O and no clock."""
