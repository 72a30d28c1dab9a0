"""Authenticates callers (`identity`) and limits what they may do (`call_limits`).

Credentials, callers' keys and the limits of the file come in. An identity with its scopes, a permit, or an error that a
client can act on goes out. Nothing here knows MCP or HTTP beyond the values of header fields.
"""
