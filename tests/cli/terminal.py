"""A command on a pseudo-terminal."""

import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.fork_server import FORKED

SECONDS: Final = 60
TERMINAL: Final = {"TERM": "xterm-256color"}


class Terminal:
    """A command whose standard streams are a terminal, and its output so far."""

    def __init__(self, folder: Path, *words: str, environ: Mapping[str, str]) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MCP_GATEWAY_") and key != "CI"}
        environment = {**kept, "MCP_GATEWAY_STATE_DIR": "none", **environ}
        self.shown = ""
        self._reading, theirs = os.openpty()
        self._process = subprocess.Popen(
            [FORKED, *words],
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)

    def read_until(self, text: str) -> str:
        """Wait until the output contains a text (`""`: until the command ends), and return the output."""
        deadline = time.monotonic() + SECONDS
        while not text or text not in self.shown:
            ready, _, _ = select.select([self._reading], [], [], max(0, deadline - time.monotonic()))
            assert ready, self.shown
            try:
                chunk = os.read(self._reading, 65536)
            except OSError:  # the other end is closed
                chunk = b""
            if not chunk:
                assert not text, self.shown
                return self.shown
            self.shown += chunk.decode()
        return self.shown

    def type(self, text: str) -> None:
        os.write(self._reading, text.encode())

    def ended(self) -> int:
        self.read_until("")
        os.close(self._reading)
        return self._process.wait(SECONDS)
