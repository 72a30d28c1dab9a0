"""Pydantic models of the configuration file. Each key is a field with its type, default and docstring.

The models take dictionaries with interpolated values. The result is a frozen model or a validation error. Models do not
read files, resolve paths or compile templates.
"""
