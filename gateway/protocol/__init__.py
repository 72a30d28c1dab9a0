"""Implements the legacy and modern eras of the Model Context Protocol, without I/O."""
