"""Turn the operations of OpenAPI documents into definitions of tools and resources with an HTTP backend."""
