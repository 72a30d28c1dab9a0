"""The catalog: the immutable set of served primitives, its compiler, and the store that holds the current one."""
