"""The lock file: digests of reviewed definitions."""
