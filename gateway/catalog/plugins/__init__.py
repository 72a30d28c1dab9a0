"""Plugins: found in directories and installed packages, imported under names of their content, started and stopped."""
