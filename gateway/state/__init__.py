"""State that survives a restart: its directory and database, the signing keys, remembered documents.

Stores (of sessions, tasks, marks) are made of a `Schema` and of functions that are given to `Database.run`; they do not
know whether it writes to a file or, while none can be written, to memory.
"""
