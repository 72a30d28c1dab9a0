"""Keeps the served catalog up to date: a watch loop, and a pipeline that loads, compiles, swaps and announces.

A failed reload leaves the previous catalog in service and its problems in the reloader's status.
"""
