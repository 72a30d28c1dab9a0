"""The messages of MCP in both directions: JSON-RPC, revisions, header fields and request metadata.

In: bytes and header fields. Out: messages, or errors with their code. Pure: no I/O and no clock, so that servers,
clients and tests use the same.
"""
