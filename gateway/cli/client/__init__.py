"""Clients for a gateway in this process and for a server at a URL."""
