"""Serves the Model Context Protocol without I/O: messages and an exchange in, replies out, for both eras."""
