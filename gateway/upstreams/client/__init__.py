"""The client: one session with a server, in either era, over stdio, Streamable HTTP or HTTP+SSE."""
