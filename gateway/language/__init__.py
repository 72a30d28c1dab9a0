"""The configuration language: templates, URI templates and JSON Schemas.

Compiles texts and schemas of the configuration into objects that render, match or validate in bounded time. Only
`confinement` does I/O, to resolve links.
"""
