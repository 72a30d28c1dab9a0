"""The sockets of HTTP: opened here or inherited, with TLS or without, and each connection on them."""
