"""The Model Context Protocol in both eras, without I/O."""
