"""The compared servers, which serve the same tools over HTTP or stdio."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

SDK_SERVER: Final = Path(__file__).with_name("official_sdk.py")
CAREFUL_SERVER: Final = Path(__file__).with_name("careful_aiohttp.py")
OURS: Final = "mcp-gateway"
CAREFUL: Final = "careful aiohttp"
SDK: Final = "official SDK"
BEFORE: Final = "mcp-gateway before"

FIXED: Final = 3
"""The number of working tools. The rest fills the list."""


class Contender(Protocol):
    @property
    def name(self) -> str: ...

    def command(self, *, tools: int, port: int | None) -> Sequence[str]:
        """Return the command for this number of tools; stdio without a port."""


@dataclass(frozen=True)
class Script:
    """A single-file server, run by a Python with its dependencies."""

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
    """The Python whose `gateway` is measured, to compare two versions."""

    def command(self, *, tools: int, port: int | None) -> Sequence[str]:
        return self.serve(self.file(tools=tools), port=port)

    def serve(self, file: Path, *, port: int | None) -> Sequence[str]:
        serve = [self.python, "-P", "-m", "gateway", "serve", str(file), "--log-level", "error"]
        return [*serve, "--stdio"] if port is None else [*serve, "--http", f"127.0.0.1:{port}"]

    def file(self, *, tools: int, edition: int = 1) -> Path:
        """Write the file. The `edition` changes its descriptions."""
        path = self.directory / f"{tools}.yaml"
        document = {
            "server": {"name": "benchmark", "page_size": max(tools, 1)},
            "tools": {**working_tools(self.upstream), **filler(tools - FIXED, edition=edition)},
        }
        path.write_text(yaml(document))
        return path


def working_tools(upstream: str) -> dict[str, object]:
    """Return the working tools, one per backend."""
    text = {"text": {"type": "string", "description": "What to say."}}
    item = {"item": {"type": "string", "description": "What to fetch."}}
    said = "Returns the given text."
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
    """Block style as people write it. JSON would be parsed faster."""
    if not isinstance(value, dict):
        return f" {json.dumps(value)}\n"
    lines = (f"{indent}{key}:{yaml(entry, indent + '  ')}" for key, entry in value.items())
    return ("\n" if indent else "") + "".join(lines)
