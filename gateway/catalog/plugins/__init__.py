"""Plugins: the Python code that `python:` names.

In come directories, entry points and module names. Out go functions with their signatures, imported under a name made
from the content of their directory, so that old calls go on with old code. Hooks start and stop what modules need.
"""
