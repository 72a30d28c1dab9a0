"""Other proxies, in front of the same server."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.contenders import CAREFUL_SERVER

FASTMCP: Final = "FastMCP's proxy"
MCP_PROXY: Final = "mcp-proxy"
TOOLBOX: Final = "MCP Toolbox"

_FASTMCP_PROXY: Final = Path(__file__).with_name("fastmcp_proxy.py")


@dataclass(frozen=True, kw_only=True)
class Others:
    """The available programs; None is skipped."""

    fastmcp: str | None = None
    """The Python with FastMCP."""
    mcp_proxy: str | None = None
    toolbox: str | None = None
    """The path of the program."""


def careful_server(service: str, *, port: int | None = None, tools: int = 10) -> list[str]:
    """Return the command of the relayed server; stdio without a port."""
    command = [sys.executable, str(CAREFUL_SERVER), "--tools", str(tools), "--upstream", service]
    return command if port is None else [*command, "--port", str(port)]


def fastmcp_proxy(
    python: str, *, port: int, is_legacy: bool, url: str | None = None, command: Sequence[str] = ()
) -> list[str]:
    """Return the command of FastMCP's proxy."""
    era = ["--legacy"] if is_legacy else []
    target = ["--url", url] if url is not None else ["--", *command]
    return [python, str(_FASTMCP_PROXY), "--port", str(port), *era, *target]


def mcp_proxy(python: str, *, port: int, command: Sequence[str]) -> list[str]:
    """Return the command of mcp-proxy in front of a stdio server."""
    own = [python, "-m", "mcp_proxy", "--port", str(port), "--log-level", "CRITICAL", "--pass-environment"]
    return [*own, "--", *command]


def toolbox(program: str, *, port: int, service: str, directory: Path) -> list[str]:
    """Return the command of MCP Toolbox with the HTTP tool."""
    documents = (
        {
            "kind": "source",
            "name": "service",
            "type": "http",
            "baseUrl": service,
            "allowPrivateNetworks": True,
            "allowedIpRanges": ["127.0.0.0/8"],
        },
        {
            "kind": "tool",
            "name": "http_get",
            "type": "http",
            "source": "service",
            "method": "GET",
            "path": "/{{.item}}",
            "description": "Returns the given text.",
            "pathParams": [{"name": "item", "type": "string", "description": "What to fetch."}],
        },
    )
    return toolbox_serving(program, port=port, documents=list(map(json.dumps, documents)), directory=directory)


def toolbox_serving(program: str, *, port: int, documents: Sequence[str], directory: Path) -> list[str]:
    """Return the command of MCP Toolbox with these documents."""
    file = directory / "toolbox.yaml"
    file.write_text("\n---\n".join(documents))
    quiet = ["--disable-version-check", "--disable-reload", "--log-level", "ERROR"]
    return [program, "--config", str(file), "--port", str(port), *quiet]
