"""MCP servers whose tools, resources and prompts the gateway offers as if the configuration defined them.

Each class owns the classes below it:

    UpstreamSource       all configured upstream servers
      UpstreamServer     one server: connects and reads its lists
        SessionPool      the sessions and calls of the server
          CircuitBreaker when to retry after failures
          Session        one session of a legacy or modern server
            Link         the transport of the session
            ServerMessages
                         requests and notifications of the server
"""
