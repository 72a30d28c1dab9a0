"""Reads the operator's files: YAML, includes, interpolation, merging.

In come paths and the environment. Out go validated models, and a tree that knows where every node was written. Each
error is a diagnostic with its place; none ends the reading of the other files.
"""
