"""Secrets: recognised in files and masked in output."""
