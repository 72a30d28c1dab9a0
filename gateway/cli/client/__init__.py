"""Clients with which commands call a gateway in this process or a server at a URL."""
