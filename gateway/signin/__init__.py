"""Pages with which people sign in to services."""
