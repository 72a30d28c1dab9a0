"""FastMCP's proxy in front of one server, in a separate environment. Imports nothing of the gateway.

It gets a connected client. Otherwise it would open a session for each request, which costs several times as much.
"""

import argparse
import asyncio
import logging
from typing import Final

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

_VERSION: Final = "2026-07-28"


async def serve(options: argparse.Namespace) -> None:
    target = options.url or StdioTransport(command=options.command[0], args=options.command[1:])
    async with Client(target, mode="legacy" if options.legacy else _VERSION) as client:
        proxy = create_proxy(client, name="benchmark")
        await proxy.run_http_async(
            host="127.0.0.1",
            port=options.port,
            show_banner=False,
            log_level="critical",
            uvicorn_config={"access_log": False},
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--url", help="the URL of the server (default: start it with the command)")
    parser.add_argument("--legacy", action="store_true", help="open a session with the server")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    logging.disable()
    asyncio.run(serve(options))


main()
