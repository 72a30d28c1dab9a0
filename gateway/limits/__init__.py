"""Limits calls: how many run at once (`concurrency`) and how often they begin (`rate_limiter`).

A caller's key and the limits of the file come in; a permit, or an error that says when to retry, goes out. Both limits
are counted in memory, outlive reloads, and are fair between callers.
"""
