"""Loads the Python functions that `python:` names, and runs the hooks of their modules."""
