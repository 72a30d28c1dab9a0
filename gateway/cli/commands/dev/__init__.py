"""The command `dev`: serves a file while it is written. In: a file. Out: calls, clients and changes as text."""
