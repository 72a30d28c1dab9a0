"""Other MCP servers, whose primitives are offered as this server's own.

`client` speaks to one server in either era, `pool` keeps the sessions with it, `discovery` asks what it offers, `relay`
executes calls there, `memory` remembers what was offered last, and `source` makes definitions of that.
"""
