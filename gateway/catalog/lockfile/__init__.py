"""The lock file: digests of reviewed definitions, and their comparison with the current ones."""
