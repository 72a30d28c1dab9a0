"""Authenticates requests: API keys of the file, and access tokens of an OAuth authorization server.

The values of two header fields come in, and what the issuer publishes. An `Identity`, or an `AuthError` that becomes
the response, goes out.
"""
