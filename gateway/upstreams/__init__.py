"""MCP servers whose primitives are served as if the file defined them.

Each class owns those below it:

    UpstreamSource       all upstream servers of the file
      UpstreamServer     one server: connects and reads its lists
        SessionPool      its sessions and calls
          CircuitBreaker when to retry after failures
          Session        one session in either era
            Link         its transport
            ServerMessages
                         requests and notifications of the server
"""
