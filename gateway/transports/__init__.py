"""Transports: read and write the bytes of MCP messages. `gateway.protocol` interprets the messages."""
