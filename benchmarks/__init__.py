"""Benchmarks of the daemon and of other servers with the same tools. See README.md."""
