"""Tasks: tool calls that outlive their requests (`io.modelcontextprotocol/tasks`)."""
