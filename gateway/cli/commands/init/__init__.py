"""The command `init`: writes a small commented configuration file."""
