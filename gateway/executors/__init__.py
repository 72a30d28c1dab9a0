"""Executors run the backends of primitives: an `Invocation` goes in, and an `Outcome` comes out."""
