"""Child processes of calls: starts them, passes on their output, and ends them with all their descendants."""
