"""The methods of the protocol, by feature, and their table.

A handler returns the result of a call as a mapping or as encoded bytes.
"""
