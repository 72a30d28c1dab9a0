"""Pydantic models of the configuration file: one field for each key, with its type, default and docstring.

In come dictionaries with interpolated values. Out go frozen models, or validation errors. Models read no files, resolve
no paths and compile no templates.
"""
