"""Reports of the current state: sessions, upstreams, limits and tasks."""
