"""The command `validate`: checks a file. In: a file. Out: every problem of it, and an exit code."""
