"""Runs tool calls as tasks (`io.modelcontextprotocol/tasks`)."""
