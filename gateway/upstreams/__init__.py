"""Other MCP servers, whose primitives are offered as this server's own.

`client` speaks to one server in either era, `pool` keeps the sessions with it, `server_lists` asks what it offers and
remembers that, `relay` executes calls there, and `source` makes definitions of the lists.
"""
