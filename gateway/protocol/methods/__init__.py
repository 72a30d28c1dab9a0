"""Implements the methods of the protocol. Each handler returns the result as a mapping or as encoded bytes."""
