"""Calls and their runs: context, progress, input requests."""
