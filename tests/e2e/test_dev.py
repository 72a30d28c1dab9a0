"""`mcp-gateway dev` on a terminal and in a pipe."""

import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from gateway.cli import main
from tests.fork_server import FORKED

TIMEOUT_SECONDS: Final = 60.0
ESCAPE: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
FILE: Final = """\
plugins: [plugins]
tools:
  echo: {description: Repeat a text., input: {text: string}, content: "{{ text }}"}
  fail: {description: Fail., content: no, is_error: true}
  noisy: {python: "noisy:noisy"}
  sleepy: {description: Sleep., input: {path: string}, shell: {script: 'touch "$INPUT_PATH"; exec sleep 600'}}
"""
NOISY: Final = """\
import os
def noisy() -> str:
    '''Make noise.'''
    print("printed by a plugin")
    os.write(1, b"written to one\\n")
    os.write(2, b"written to two\\n")
    return "done"
"""


class Dev:
    """The process and its output so far."""

    def __init__(self, process: subprocess.Popen[bytes], reading: int) -> None:
        self.process: Final = process
        self.raw = ""
        self._reading: Final = reading
        self._changed: Final = threading.Condition()
        self._has_ended = False
        self._thread: Final = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def shown(self) -> str:
        return ESCAPE.sub("", self.raw)

    def wait_for(self, text: str) -> str:
        """Wait until the output contains a text, and return its line."""

        def found() -> bool:
            return text in self.shown or self._has_ended

        with self._changed:
            assert self._changed.wait_for(found, TIMEOUT_SECONDS), self.shown
        lines = [line for line in self.shown.splitlines() if text in line]
        assert lines, self.shown
        return lines[0]

    def url(self) -> str:
        self.wait_for("serving http")
        limit = time.monotonic() + TIMEOUT_SECONDS
        # The terminal can show a part of the line first.
        while (found := re.search(r"serving (http\S+/mcp)", self.shown)) is None and time.monotonic() < limit:
            time.sleep(0.05)
        assert found is not None, self.shown
        return found[1]

    def ended(self) -> int:
        code = self.process.wait(TIMEOUT_SECONDS)
        self._thread.join(TIMEOUT_SECONDS)
        return code

    def _read(self) -> None:
        with suppress(OSError):  # the other end of the terminal is closed
            while chunk := os.read(self._reading, 65536):
                with self._changed:
                    self.raw += chunk.decode(errors="replace")
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()


@contextmanager
def developing(folder: Path, *flags: str, terminal: bool = False, http: str = "127.0.0.1:0") -> Iterator[Dev]:
    """Run `dev` with its output in a pipe or on a terminal."""
    ours, theirs = os.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MCP_GATEWAY_")}
    process = subprocess.Popen(
        [FORKED, "dev", "config.yaml", "--http", http, *flags],
        cwd=folder,
        stdin=theirs if terminal else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm-256color"},
        start_new_session=terminal,
    )
    os.close(theirs)
    dev = Dev(process, ours)
    try:
        yield dev
    finally:
        process.kill()
        process.wait()
        dev.ended()
        os.close(ours)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(FILE)
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "noisy.py").write_text(NOISY)
    return tmp_path


def call(dev: Dev, *words: str) -> int:
    return main(["call", "--url", dev.url(), *words])


@pytest.mark.parametrize("place", ["pipe", "terminal"])
def test_calls_and_changes_are_shown_live(folder: Path, place: str) -> None:
    with developing(folder, terminal=place == "terminal") as dev:
        call(dev, "echo", "text=hello")
        assert '✓ echo  {"text":"hello"}' in dev.wait_for("✓ echo")
        call(dev, "fail")
        assert "tool error: no" in dev.wait_for("✗ fail")
        call(dev, "nothing")
        assert "refused: Unknown tool: nothing" in dev.wait_for("✗ nothing (unknown)")
        (folder / "config.yaml").write_text(FILE.replace("Repeat a text", "Return a text").replace("fail:", "fails:"))
        dev.wait_for("↻ generation 2")
        assert "description" in dev.wait_for("~ tools.echo")
        dev.wait_for("+ tools.fails")
        dev.wait_for("- tools.fail ")
        (folder / "config.yaml").write_text(FILE.replace("content: no", "contnt: no"))
        dev.wait_for("the file is invalid; generation 2 is still served")
        dev.wait_for("did you mean `content`?")
        (folder / "config.yaml").write_text(FILE)
        dev.wait_for("✓ the file is valid again")
        dev.process.send_signal(signal.SIGINT)
        assert dev.ended() == 0
    assert ("\x1b" in dev.raw) is (place == "terminal")
    assert dev.raw.count("did you mean `content`?") == 1


def test_plugin_output_is_shown_in_whole_lines(folder: Path) -> None:
    with developing(folder, terminal=True) as dev:
        call(dev, "noisy")
        dev.wait_for("✓ noisy")
        for text in ("printed by a plugin", "written to one", "written to two"):
            assert dev.wait_for(text).strip() == text


def test_running_calls_are_cancelled_at_the_end(folder: Path) -> None:
    with developing(folder, terminal=True) as dev:
        calling = threading.Thread(target=call, args=(dev, "sleepy", f"path={folder}/up"))
        calling.start()
        while not (folder / "up").exists():
            time.sleep(0.02)
        dev.process.send_signal(signal.SIGINT)
        assert dev.ended() == 0
        assert "cancelled" in dev.wait_for("✗ sleepy")
        calling.join(TIMEOUT_SECONDS)


@pytest.mark.parametrize("place", ["pipe", "terminal"])
def test_invalid_file_is_shown_and_served_after_its_correction(folder: Path, place: str) -> None:
    (folder / "config.yaml").write_text(FILE.replace("content: no", "contnt: no"))
    with developing(folder, terminal=place == "terminal") as dev:
        dev.wait_for("nothing is served until it is fixed")
        dev.wait_for("did you mean `content`?")
        (folder / "config.yaml").write_text("tools: [")
        dev.wait_for("YAML syntax")
        (folder / "config.yaml").write_text(FILE)
        call(dev, "echo", "text=hello")
        dev.wait_for("✓ echo")


def test_wait_for_a_file_can_be_interrupted(folder: Path) -> None:
    (folder / "config.yaml").unlink()
    with developing(folder) as dev:
        dev.wait_for("nothing is served until it is fixed")
        dev.process.send_signal(signal.SIGTERM)
        assert dev.ended() == 0


def test_start_can_be_interrupted(folder: Path) -> None:
    slow = (
        'import asyncio\nasync def startup():\n    print("it takes long", flush=True)\n    await asyncio.sleep(600)\n'
    )
    (folder / "plugins" / "noisy.py").write_text(NOISY + slow)
    with developing(folder, terminal=True) as dev:
        dev.wait_for("it takes long")
        dev.process.send_signal(signal.SIGTERM)
        assert dev.ended() == 0


def test_closed_output_ends_dev(folder: Path) -> None:
    words = [FORKED, "dev", "config.yaml", "--http", "127.0.0.1:0"]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            # Warnings come first, for example about leftovers of another daemon.
            url = next(line for line in process.stdout if "serving " in line).split("serving ")[1].strip()
            process.stdout.close()
            main(["call", "--url", url, "echo", "text=x"])
            assert process.wait(TIMEOUT_SECONDS) == 0
        finally:
            process.kill()


def test_address_in_use_is_an_error_at_once(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with developing(folder, http=f"127.0.0.1:{taken.getsockname()[1]}") as dev:
            assert dev.ended() == 2
        assert "is already in use" in dev.shown


def test_open_uses_a_private_file_for_the_browser(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = tmp_path_factory.mktemp("programs") / "browser"
    browser.write_text('#!/bin/sh\npage="${1#file://}"\ncat "$page"\nstat -c "its folder has mode %a" "${page%/*}"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with developing(folder, "--open") as dev:
        assert dev.wait_for("its folder has mode").endswith(" 700")
        [link] = re.findall(r"console (\S+)", dev.shown)
        assert f"url={link}" in dev.wait_for("http-equiv")
        with urlopen(link, timeout=TIMEOUT_SECONDS) as page:
            assert page.status == 200
        dev.process.send_signal(signal.SIGINT)
        assert dev.ended() == 0


def test_console_requires_open_or_its_key(folder: Path) -> None:
    with developing(folder) as dev:
        serving = dev.wait_for("serving")
        with pytest.raises(HTTPError, match="404"):
            urlopen(serving.split()[-1].removesuffix("/mcp") + "/-/console/", timeout=TIMEOUT_SECONDS)
