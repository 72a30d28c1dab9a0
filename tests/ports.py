"""A port for a server that must be told one, such as nginx, or whose URL must be known before it starts."""

import socket


def free_port() -> int:
    """Return a port of 127.0.0.1 that is reserved for a minute: only programs that ask for its number get it.

    Linux reserves a port while one of its connections is in TIME_WAIT (RFC 9293 §3.6.1). A program that binds the
    port with SO_REUSEADDR, as servers do, still gets it.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            connection, _ = server.accept()
            connection.close()  # who closes first is who lingers
            client.recv(1)
    return port
