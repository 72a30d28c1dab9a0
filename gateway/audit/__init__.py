"""The audit log: calls, reloads and denied requests as JSON lines in a file."""
