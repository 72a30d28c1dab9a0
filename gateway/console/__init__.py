"""The browser console, and the API `/-/api/…` for the console and scripts.

Calls of tools run as the caller, and nothing changes the configuration. See `docs/console-api.md`. Imported only if the
console is enabled.
"""
