"""Runs several worker processes that serve the same address, and their supervisor."""
