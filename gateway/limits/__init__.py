"""Limits on calls: concurrency (`concurrency`) and rates (`rate_limiter`).

Both are counted in memory, outlive reloads, and are fair between callers.
"""
