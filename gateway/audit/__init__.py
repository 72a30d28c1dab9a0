"""The audit log records calls, reloads and denied requests as JSON lines in a file."""
