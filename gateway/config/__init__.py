"""The configuration: models of what may be written, the loader, and the process's settings.

In come the operator's YAML files, flags and environment variables. Out go a frozen `Document`, `Settings`, the secrets
to mask, and every problem with its place. Nothing is compiled or run here.
"""
