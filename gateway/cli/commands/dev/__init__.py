"""The command `dev`: serves a file while you edit it, and shows calls, clients and changes."""
