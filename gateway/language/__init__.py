"""The parts of the configuration language: templates, URI templates, JSON Schemas.

In come texts and schemas of the file, each with the scope that says which names it may use and where problems go. Out
go compiled objects that a call renders, matches or validates with, in bounded time. Nothing here does I/O but
`confinement`, which resolves links.
"""
