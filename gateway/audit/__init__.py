"""Records who did what: the audit log of a daemon.

Calls (as an observer), reloads and denied requests come in. Lines of JSON in one file go out, in order, without making
a call wait.
"""
