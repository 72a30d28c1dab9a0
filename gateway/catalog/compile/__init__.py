"""Compiles definitions into primitives when the configuration is loaded, so that requests need no compilation."""
