"""The command `dev`, and what it shows while a file is written: on a terminal, or as lines."""
