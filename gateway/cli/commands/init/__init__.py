"""The command `init`.

In: nothing, or what exists already: servers of an MCP client, an OpenAPI document, an SQLite database. Out: a small
commented configuration file, which serves as it lies.
"""
