"""Pages on which users sign in to services."""
