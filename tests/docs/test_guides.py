"""Each guide works as written, step by step, in an empty directory."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.docs.guide import DOCS, GUIDES, REFERENCES, Example, Save, Step, Typed, steps_of, wait_for
from tests.fork_launcher import fork_launcher
from tests.fork_server import FORKED
from tests.ports import free_port
from tests.programs import need, need_sandboxes

SETTLED_SECONDS: Final = 30.0
"""Time for a server to notice a saved file."""
SECONDS: Final = 60


_PORTS: Final = {"mcp-gateway": "8000", "python3": "9000", "nginx": "8080"}
"""The ports of servers in the guides."""


class Reader:
    """Follows a guide. Ports in it are replaced by free ones, to avoid conflicts."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder: Final = folder
        self._stack: Final = stack
        self._ports: Final[dict[str, int]] = {}
        scripts = Path(sys.executable).parent
        self._environ: Final = {
            **{name: value for name, value in os.environ.items() if name.startswith(("LANG", "LC_"))},
            "PATH": f"{fork_launcher().folder}:{scripts}:{os.environ['PATH']}:/usr/sbin",
            "HOME": str(folder),
        }

    def follow(self, step: Step) -> None:
        match step:
            case Example(text):
                path = self.folder / "example.yaml"
                path.write_text(text)
                assert self._type("mcp-gateway validate --strict example.yaml") == "example.yaml is valid\n"
            case Save(name, text, is_added):
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text((path.read_text() if is_added else "") + self._here(text))
            case Typed(command) if step.serves:
                self._serve(self._here(command))
            case Typed(command, _):
                expected, until = Typed(command, self._here(step.shown)), time.monotonic() + SETTLED_SECONDS
                while not expected.matches(shown := self._type(self._here(command))):
                    # Give a running server time to notice a file that was just saved.
                    may_change = "--url" in command and time.monotonic() < until
                    assert may_change, f"$ {command}\n{shown}"

    def _type(self, command: str) -> str:
        done = subprocess.run(
            _program(command),
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.stdout

    def _serve(self, command: str) -> None:
        path = self.folder / "server.log"
        log = self._stack.enter_context(path.open("a"))
        program = re.sub(r"^(\S+=\S+ )+", "", command).split(maxsplit=1)[0]
        port = self._port(_PORTS[program])
        if program == "mcp-gateway":
            self._environ["MCP_GATEWAY_HTTP"] = f"127.0.0.1:{port}"
        process = subprocess.Popen(
            _program(re.sub(r"^((?:\S+=\S+ )*)", r"\1exec ", command)),
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        self._stack.callback(process.wait, SECONDS)
        self._stack.callback(process.send_signal, signal.SIGTERM)
        wait_for(port, process, path)

    def _here(self, text: str) -> str:
        return re.sub(r"(?<=127\.0\.0\.1:)\d{4}|(?<=http\.server )\d{4}", lambda port: str(self._port(port[0])), text)

    def _port(self, written: str) -> int:
        return self._ports.setdefault(written, free_port())


def _program(command: str) -> list[str]:
    """Return the command line: a fork for simple `mcp-gateway` commands, otherwise a shell."""
    typed = command.removeprefix("exec ")
    unquoted = re.sub(r"'[^']*'|\"[^\"$`\\\\]*\"", "", typed)
    if not typed.startswith("mcp-gateway ") or re.search(r"[^\w ./:,=@%+-]", unquoted):
        return ["bash", "-c", command]
    return [FORKED, *shlex.split(typed)[1:]]


@pytest.mark.parametrize("guide", [*GUIDES, *REFERENCES], ids=lambda path: path.stem)
def test_guide_works_as_written(guide: Path, tmp_path: Path) -> None:
    steps = list(steps_of(guide.read_text()))
    assert steps
    for name in ("curl", "nginx", "openssl"):
        if any(isinstance(step, Typed) and re.search(rf"\b{name} ", step.command) for step in steps):
            need(name)
    if any("sandbox: {}" in step.text for step in steps if isinstance(step, Save)):
        need_sandboxes()
    with ExitStack() as stack:
        reader = Reader(tmp_path, stack)
        if guide in REFERENCES:
            reader.follow(
                Save("config.yaml", "tools:\n  greet: {description: Say hello., content: Hello.}\n", is_added=False)
            )
        for step in steps:
            reader.follow(step)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_links_point_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target
