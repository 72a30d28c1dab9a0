"""HTTP requests to other services: guarded connections, retries, redirects, and what may go wrong."""
