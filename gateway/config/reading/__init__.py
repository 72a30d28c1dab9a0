"""Reads configuration files: YAML, includes, interpolation and merging."""
