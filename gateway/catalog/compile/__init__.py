"""Compiles definitions into primitives, so that requests only look things up."""
