"""A port for a server that must be told one, such as nginx, or whose URL must be known before it starts."""

import socket


def free_port() -> int:
    """A port of 127.0.0.1 that nobody is given who does not ask for it by number, for a minute from now.

    Linux keeps a port apart while a connection of it lingers in TIME_WAIT (RFC 9293 §3.6.1); whoever binds it with
    SO_REUSEADDR, as servers do, has it all the same.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            connection, _ = server.accept()
            connection.close()  # who closes first is who lingers
            client.recv(1)
    return port
