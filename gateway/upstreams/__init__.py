"""Other MCP servers, whose primitives are served as if they were defined in the file.

Each class owns those below it:

    UpstreamSource       all upstreams of the file, and their definitions
      UpstreamServer     one upstream: a task that connects, probes and reads its lists
        SessionPool      its sessions by client, and calls: limited, repeated and counted
          CircuitBreaker when to try again after failures
          Session        one session in either era: handshake, requests, watched resources
            Link         its transport: standard streams, Streamable HTTP or HTTP+SSE
            ServerMessages
                         requests and notifications of the server

A call goes from a relay of the catalog (`relay`) to the pool as a `RelayedCall`.
"""
