"""The JSON Schema of the configuration file, and the Markdown reference.

In come the models with the docstrings of their fields. Out go `config/schema.json` and `docs/reference.md`, so that
nothing is written twice.
"""
