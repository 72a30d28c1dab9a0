"""Executors run the backends of primitives: they receive an `Invocation` and return an `Outcome`."""
