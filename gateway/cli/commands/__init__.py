"""The commands, listed in `gateway/cli/command_table.py`.

A command is a module with the functions `parser` and `run`. Larger commands are packages with a module `command`.
"""
