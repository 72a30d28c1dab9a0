"""Worker processes that serve the same address, and the supervisor that starts them."""
