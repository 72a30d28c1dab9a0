"""Tool calls as tasks (`io.modelcontextprotocol/tasks`)."""
