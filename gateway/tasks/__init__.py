"""Tasks: tool calls that outlive their requests. `gateway.protocol` has the wire form."""
