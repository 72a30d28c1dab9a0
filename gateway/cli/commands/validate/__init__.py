"""The command `validate`: reports every problem of a file."""
