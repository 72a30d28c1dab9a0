"""The audit log of a daemon.

Calls (through the observer interface), reloads and denied requests are recorded as JSON lines in a file, without
delaying calls.
"""
