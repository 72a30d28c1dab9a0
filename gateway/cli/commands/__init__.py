"""The commands that `gateway/cli/command_table.py` lists.

Each command is a module or a package with the functions `parser` and `run`.
"""
