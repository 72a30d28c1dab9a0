"""Outbound HTTP for everybody: a guarded client, TLS, redirects, retries, and signing in to other services.

A `Request` comes in; a `Response`, or the stream of an answer, goes out. Every address is judged before it is connected
to.
"""
