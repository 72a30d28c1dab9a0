"""Outbound HTTP: a guarded client with TLS, redirects and retries, and sign-in to other services."""
