"""Implements tasks, which are tool calls that outlive their requests (`io.modelcontextprotocol/tasks`)."""
