"""Functions of plugins: their signatures, how they are called, and what they return.

A signature becomes JSON Schemas at load. Arguments in JSON come in with a call, are converted to what the type hints
say, and what the function returns goes out as an outcome.
"""
