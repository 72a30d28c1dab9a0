"""Free ports for servers whose port must be known before they start."""

import socket


def free_port() -> int:
    """Return a port of 127.0.0.1 that the system does not assign to other programs for a minute.

    Linux does not assign a port while one of its connections is in TIME_WAIT (RFC 9293 §3.6.1). Servers can still bind
    it, because they set SO_REUSEADDR.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            connection, _ = server.accept()
            connection.close()  # the side that closes first enters TIME_WAIT
            client.recv(1)
    return port
