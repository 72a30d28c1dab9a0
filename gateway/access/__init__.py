"""Authenticates callers.

Credentials and the keys and issuers of the file come in. An identity with its scopes goes out, or an error that a
client can act on. Nothing here knows MCP or HTTP beyond the values of header fields.
"""
