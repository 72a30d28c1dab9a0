"""The manifest of an MCP bundle (https://github.com/modelcontextprotocol/mcpb, MANIFEST.md, version 0.4)."""

import re
from collections.abc import Mapping
from typing import Final

from gateway import __version__
from gateway.catalog.catalog import Catalog
from gateway.config.models.server import Server
from gateway.config.reading.interpolation import Variable
from gateway.json_types import Json

DISTRIBUTION: Final = "mcp-gateway-daemon"
DIRECTORY: Final = "server"
"""The directory of the bundle in which the configuration lies."""
ENTRY_POINT: Final = f"{DIRECTORY}/start.py"

PROJECT: Final = f"""\
[project]
name = "mcp-gateway-bundle"
version = "0"
requires-python = ">=3.11"
dependencies = ["{DISTRIBUTION}=={__version__}"]
"""
"""The `pyproject.toml` from which the client's uv makes the environment."""


def start_script(config: str) -> str:
    """The program that the client starts: it serves the configuration over stdio."""
    return f'''\
"""Serves the configuration of this bundle over standard input and output."""

import sys
from pathlib import Path

from gateway.__main__ import main

sys.argv[1:] = ["serve", str(Path(__file__).with_name({config!r})), "--stdio", "--no-watch"]
sys.exit(main())
'''


def manifest(server: Server, catalog: Catalog, variables: Mapping[str, Variable], *, author: str) -> dict[str, Json]:
    """The manifest of a bundle whose configuration reads these variables of the environment."""
    known = catalog.sanitizer
    optional = {
        "display_name": server.title,
        "long_description": server.instructions,
        "homepage": server.website_url,
    }
    return {
        "manifest_version": "0.4",
        "name": re.sub(r"[^a-z0-9]+", "-", server.name.lower()).strip("-") or "mcp-gateway",
        **{key: known.text(value) for key, value in optional.items() if value is not None},
        "version": server.version or "0.1.0",
        "description": known.text(server.description or f"Tools of {server.name}"),
        "author": {"name": author},
        "server": {
            "type": "uv",
            "entry_point": ENTRY_POINT,
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", ENTRY_POINT],
                "env": {name: f"${{user_config.{_key(name)}}}" for name in variables},
            },
        },
        "tools": [
            {"name": tool.name, "description": _first_line(tool.definition.get("description"))}
            for tool in catalog.tools.values()
        ],
        "tools_generated": True,
        "prompts_generated": True,
        "compatibility": {"platforms": ["linux", "darwin"], "runtimes": {"python": ">=3.11"}},
        "user_config": {_key(name): _setting(name, variable) for name, variable in variables.items()},
    }


def _key(variable: str) -> str:
    return variable.lower()


def _setting(name: str, variable: Variable) -> dict[str, Json]:
    """The setting that the client asks its user for. An optional variable that is left empty is as good as not set."""
    return {
        "type": "string",
        "title": name,
        "description": f"The value of {name}" + ("" if variable.is_needed else ", which may be left empty"),
        "required": variable.is_needed,
        "sensitive": variable.is_secret,
        **({} if variable.is_needed else {"default": ""}),
    }


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
