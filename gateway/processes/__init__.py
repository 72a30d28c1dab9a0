"""Child processes: start them, read their output, and end them with all their descendants."""
