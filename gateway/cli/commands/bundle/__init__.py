"""The command `bundle`.

In: a file, and all that it names. Out: an MCP bundle (`.mcpb`), which a desktop client installs.
"""
