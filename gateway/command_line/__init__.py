"""Shared parts of the commands: parsing of words, printing of text, and a client for running servers.

In: words, files and URLs that a person typed. Out: settings, arguments and lines on standard output or error.
"""
