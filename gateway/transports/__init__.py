"""Sends and receives MCP messages over HTTP, stdio and memory. `gateway.protocol` handles the messages."""
