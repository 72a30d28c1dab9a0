"""Reads configuration files: YAML, includes, interpolation, merging. An error in one file does not stop the others."""
