"""Reports of the daemon as it is now: sessions, upstreams, limits and tasks."""
