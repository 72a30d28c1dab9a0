"""Runs the backends of tools, resources and prompts. An executor receives an `Invocation` and returns an `Outcome`."""
