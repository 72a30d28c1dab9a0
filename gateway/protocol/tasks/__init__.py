"""Tool calls as tasks (`io.modelcontextprotocol/tasks`). In: a call, or the record of a task. Out: an ending."""
