"""Reads configuration files: YAML, includes, interpolation, merging. An error in one file does not hide others."""
