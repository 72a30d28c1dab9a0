"""HTTP listeners and connections."""
