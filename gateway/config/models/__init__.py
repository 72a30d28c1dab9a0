"""Pydantic models of the configuration file. The field docstrings are the reference.

Models validate dictionaries with interpolated values. They do not read files, resolve paths or compile templates.
"""
