"""One file for each page of the specification's methods, and the table that finds them.

A handler gets the request's context and the runtime, and returns the result as a mapping, or as the bytes of one that
was encoded before. It raises `RpcError` for everything that is the peer's mistake.
"""
