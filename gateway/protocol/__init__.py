"""The Model Context Protocol without I/O: messages, both eras' doors, methods, and the wire form of results."""
