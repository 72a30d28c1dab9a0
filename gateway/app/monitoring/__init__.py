"""Status, metrics and task reports of a running daemon."""
