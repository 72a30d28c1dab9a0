"""Doubts about what a file offers: what poisons or confuses a model, or lets somebody else write what is run.

Each file knows one kind of doubt, and `linter` where to look for it. All are warnings: none keeps a file from being
served. They are few and narrow, since a list that cries wolf is not read.
"""
