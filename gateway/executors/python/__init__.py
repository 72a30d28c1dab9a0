"""Plugin functions: signatures, calls and results."""
