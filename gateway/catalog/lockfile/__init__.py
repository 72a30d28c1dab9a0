"""The lock file: digests of the definitions that somebody reviewed.

In come the definitions as they are written, and `mcp-gateway.lock`. Out go the differences between the two; with
`server.lock: enforce`, a definition that differs is not compiled.
"""
