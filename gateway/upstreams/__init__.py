"""Connects to other MCP servers, and offers their tools, resources and prompts as if the configuration defined them.

*Legacy* servers implement revisions 2024-11-05 to 2025-11-25. *Modern* servers implement 2026-07-28, which has no
sessions and no handshake.

Each class owns the classes below it:

    UpstreamSource       all configured upstream servers
      UpstreamServer     one server: connects and reads its lists
        SessionPool      the sessions and calls of the server
          CircuitBreaker when to retry after failures
          Session        one MCP session, or one connection to a modern server
            Link         the transport of the session
            ServerMessages
                         requests and notifications of the server
"""
