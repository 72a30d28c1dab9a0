"""How fast and how small the daemon is, beside the official SDK serving the same tools. See README.md."""
