"""Compiles definitions, so that a request only looks up: what does not depend on its arguments is done once, before.

In come the models of one file and the context that all definitions share. Out go primitives with executors, compiled
schemas and templates, and problems at the places where their causes are written.
"""
