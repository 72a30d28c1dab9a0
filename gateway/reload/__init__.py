"""Reloads the catalog when its files change. A failed reload keeps the previous catalog in service."""
