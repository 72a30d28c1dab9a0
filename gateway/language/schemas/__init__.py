"""JSON Schemas of arguments and results.

In come schemas of the file and values of a call. Out go validators, defaults, coerced values, and errors in words that
a model can act on. The cost of each validation is bounded; no reference is ever fetched.
"""
