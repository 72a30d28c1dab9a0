"""The commands of `mcp-gateway`, which `gateway/cli/command_table.py` lists.

A command is a module with `parser` and `run`; one that needs several files is a package, with these two in `command`.
Comes in: the parsed options. Goes out: lines on two consoles, results on one and hints on the other, and an exit code.
"""
