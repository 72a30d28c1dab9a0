"""Other MCP servers, whose primitives are offered as this server's own.

Each owns what stands below it:

    UpstreamSource       all that the file names: makes definitions of what they offer
      UpstreamServer     one of them: a task that connects, probes, and asks for its lists when they may be others
        SessionPool      its sessions, by client, and the calls in them: limited, sent again, counted
          CircuitBreaker when it may be tried again, and what went wrong
          Session        one session in either era: handshake, metadata of requests, what is watched
            Link         its transport: standard streams, Streamable HTTP, HTTP+SSE
            ServerMessages
                         what the server says by itself: brought to the `Caller` of the request that it belongs to

A call goes from a relay of the catalog (`relay`) straight to the pool.
"""
