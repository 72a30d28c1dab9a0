"""Lints: warnings of what confuses or manipulates a model, or lets somebody else change what is run.

In comes a document without errors. Each file knows one kind of warning, and `linter` the places to look for it; none
keeps a file from being served. They are few and narrow: a list with false alarms is not read.
"""
