"""The process that the daemon lives in: how it ends, how it pauses, and whoever started it."""
