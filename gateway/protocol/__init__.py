"""The Model Context Protocol of both eras, without I/O."""
