"""JSON Schemas, compiled once; and their findings, in words a model can act on."""
