"""Who is compared: each serves the same tools, over HTTP or on standard input and output."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

SDK_SERVER: Final = Path(__file__).with_name("official_sdk.py")
PLAIN_SERVER: Final = Path(__file__).with_name("plain_aiohttp.py")
OURS: Final = "mcp-gateway"
PLAIN: Final = "plain aiohttp"
SDK: Final = "official SDK"
BEFORE: Final = "mcp-gateway before"

FIXED: Final = 3
"""Tools that do something; the rest fills the list."""


class Contender(Protocol):
    @property
    def name(self) -> str: ...

    def command(self, *, tools: int, port: int | None) -> Sequence[str]:
        """How it is started with that many tools; stdio where there is no port."""


@dataclass(frozen=True)
class Script:
    """A server of one file, run by a Python that has what it imports."""

    name: str
    python: str
    script: Path
    upstream: str

    def command(self, *, tools: int, port: int | None) -> Sequence[str]:
        serve = [self.python, str(self.script), "--tools", str(tools), "--upstream", self.upstream]
        return serve if port is None else [*serve, "--port", str(port)]


@dataclass(frozen=True)
class Gateway:
    directory: Path
    upstream: str
    name: str = OURS
    python: str = sys.executable
    """Whose `gateway` is served: that of another checkout, to compare two states of the code."""

    def command(self, *, tools: int, port: int | None) -> Sequence[str]:
        return self.serve(self.file(tools=tools), port=port)

    def serve(self, file: Path, *, port: int | None) -> Sequence[str]:
        serve = [self.python, "-P", "-m", "gateway", "serve", str(file), "--log-level", "error"]
        return [*serve, "--stdio"] if port is None else [*serve, "--http", f"127.0.0.1:{port}"]

    def file(self, *, tools: int, edition: int = 1) -> Path:
        """Write the file; another `edition` has other descriptions."""
        path = self.directory / f"{tools}.yaml"
        document = {
            "server": {"name": "benchmark", "page_size": max(tools, 1)},
            "tools": {**working_tools(self.upstream), **filler(tools - FIXED, edition=edition)},
        }
        path.write_text(yaml(document))
        return path


def working_tools(upstream: str) -> dict[str, object]:
    """The tools that do something, one for each backend."""
    text = {"text": {"type": "string", "description": "What to say."}}
    item = {"item": {"type": "string", "description": "What to fetch."}}
    said = "Says what it was told."
    return {
        "echo": {"description": said, "input": text, "content": "{{ text }}"},
        "shell_echo": {"description": said, "input": text, "shell": {"command": ["echo", "{{ text }}"]}},
        "http_get": {
            "description": said,
            "input": item,
            "http": {"url": f"{upstream}/{{item}}", "allow_private": ["127.0.0.0/8"]},
        },
    }


def filler(count: int, *, edition: int = 1) -> dict[str, object]:
    inputs = {
        "path": {"type": "string", "description": "Where to look."},
        "depth": {"type": "integer", "description": "How deep.", "minimum": 0, "maximum": 9, "default": 1},
        "quiet": {"type": "boolean", "description": "Whether to say less.", "default": False},
    }
    return {
        f"tool_{number}": {
            "description": f"Looks somewhere ({edition}).",
            "input": inputs,
            "content": "{{ path }} {{ depth }} {{ quiet }}",
        }
        for number in range(count)
    }


def yaml(value: object, indent: str = "") -> str:
    """Block style, as a person writes it, for JSON would be read quicker than what people have."""
    if not isinstance(value, dict):
        return f" {json.dumps(value)}\n"
    lines = (f"{indent}{key}:{yaml(entry, indent + '  ')}" for key, entry in value.items())
    return ("\n" if indent else "") + "".join(lines)
