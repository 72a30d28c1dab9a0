"""The command `publish-info`.

In: a file, and what is published of it. Out: the `server.json` that a registry of MCP servers takes.
"""
