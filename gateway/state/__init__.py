"""Persistent state: the state directory and its database, the signing keys, and the shared store of replicas.

Stores pass functions to `StateDatabase.run`. They do not know whether it writes to a file or to memory.
"""
