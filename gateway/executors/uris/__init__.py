"""URLs and URIs: RFC 6570 templates, expanded with a caller's values or matched back to them."""
