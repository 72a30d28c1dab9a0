"""Recognises secrets in files, and masks secrets in output."""
