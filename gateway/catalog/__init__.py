"""The immutable set of served primitives: its compiler, and the store of the current catalog."""
