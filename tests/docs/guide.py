"""Follows a guide: saves its files, runs its commands, and compares the output.

- A block of code after a line that ends with "as `NAME`:" is saved under that name. After "at the end of `NAME`:", it
  is appended.
- In a `console` block, lines that start with `$ ` are typed, and the lines below show their output. `…` matches
  any text within a line, or for any number of whole lines.
- A block of YAML that is not saved is a separate file, and must be valid.
- Commands in an `sh` block and unsaved JSON are only shown. `test_commands.py` lists these commands.
- A command that serves and shows no output keeps running in the background, as the guide asks the reader to do.
"""

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"
INSTALL: Final = DOCS / "install.md"
GUIDES: Final = [DOCS / "tutorial.md", *sorted((DOCS / "guides").glob("*.md"))]
"""Pages that start in an empty directory, with the gateway on the PATH."""
REFERENCES: Final = [DOCS / "logs.md", DOCS / "tracing.md"]
"""Pages that start in a directory with a `config.yaml`."""

_BLOCK: Final = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVED: Final = re.compile(r"\bas `([^`]+)`[:;]")
_ADDED: Final = re.compile(r"at the end of `([^`]+)`:$")


@dataclass(frozen=True)
class Save:
    """A file to write or to append to."""

    name: str
    text: str
    is_added: bool


@dataclass(frozen=True)
class Example:
    """A file that is shown but not saved."""

    text: str


@dataclass(frozen=True)
class Typed:
    """A command and its expected output."""

    command: str
    shown: str

    @property
    def serves(self) -> bool:
        servers = r"^(\S+=\S+ )*(mcp-gateway serve|python3 -m http\.server|nginx)\b"
        return not self.shown and re.search(servers, self.command) is not None

    def matches(self, output: str) -> bool:
        """Return whether an output matches the guide."""
        lines = [
            "(?:[^\n]*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"[ \t]*\n"
            for line in self.shown.splitlines()
        ]
        return (
            re.fullmatch("".join(lines), output if not output or output.endswith("\n") else f"{output}\n") is not None
        )


Step = Save | Example | Typed


def steps_of(markdown: str) -> Iterator[Step]:
    for block in _BLOCK.finditer(markdown):
        before, kind, text = markdown[: block.start()].rstrip().rpartition("\n")[2], block["kind"], block["text"]
        if kind == "console":
            yield from _typed(text)
        elif saved := _SAVED.search(before):
            yield Save(saved[1], text, is_added=False)
        elif added := _ADDED.search(before):
            yield Save(added[1], text, is_added=True)
        elif kind not in {"sh", "json"}:
            assert kind == "yaml", f"cannot run this block: {text}"
            yield Example(text)


def _typed(text: str) -> Iterator[Typed]:
    for entry in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = entry.partition("\n")
        yield Typed(command, shown)


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path, *, seconds: int = 60) -> None:
    """Wait until a server listens."""
    for _ in range(seconds * 20):
        assert process.poll() is None, f"the server ended: {log.read_text()}"
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"the server is not listening: {log.read_text()}")
