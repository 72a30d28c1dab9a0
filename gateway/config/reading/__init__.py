"""Reads the configuration files: YAML, includes, interpolation, merging. One error does not stop the other files."""
