"""Where the daemon listens: its bindings, addresses and certificate, and who could reach them."""
