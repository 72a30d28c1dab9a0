"""Converts operations of OpenAPI documents to definitions of tools and resources with an HTTP backend."""
