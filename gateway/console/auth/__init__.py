"""Signing in: who may use the console, and as whom. In: requests, or credentials. Out: identities, cookies, errors."""
