"""Collects, locates and renders problems of a configuration."""
