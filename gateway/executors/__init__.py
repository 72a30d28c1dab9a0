"""Executors: run what the backends of primitives say (commands, HTTP requests, functions, fixed content, files).

An `Invocation` comes in, validated and with its defaults filled in; an `Outcome` goes out, before its wire form, and
`output/` shapes it. `Services` holds what executors share and the app owns: processes, connections, threads, caches.
"""
