"""The browser console, and the API `/-/api/…` for the console and scripts.

Users call tools with their own identity and cannot change the configuration. See `docs/console-api.md`. The gateway
imports this package only if the console is enabled.
"""
