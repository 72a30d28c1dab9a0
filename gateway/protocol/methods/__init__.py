"""The protocol's methods, one file per feature, and the table that names them.

A handler takes the call and returns its result as a mapping, or as the bytes of one that was encoded before.
"""
