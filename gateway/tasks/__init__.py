"""Tasks: tool calls that outlive their requests. The records, where they are stored, and what runs them.

The extension `io.modelcontextprotocol/tasks` as clients see it is in `gateway.protocol`; nothing here knows the wire.
"""
