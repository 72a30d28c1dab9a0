"""Outbound HTTP requests with an address guard, TLS, redirects and retries, and sign-in to other services."""
