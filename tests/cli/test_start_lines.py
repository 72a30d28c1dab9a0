"""The lines that `serve` prints after its start."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from gateway.platform_facilities import missing_facilities
from tests.cli.typed import Run, started

READ_ONLY = "tools: {now: {description: Now., annotations: {read_only: true}, content: 'It is noon.'}}\n"


@pytest.fixture
def config(run: Run, tmp_path: Path) -> Path:
    del run  # changes the directory
    (tmp_path / "config.yaml").write_text("listen: {console: true}\n" + READ_ONLY)
    return tmp_path


def test_serve_shows_endpoint_command_and_console_link(config: Path) -> None:
    with started("serve", "--http", "127.0.0.1:0", "--log-format", "console", cwd=config) as server:
        assert server.stderr is not None
        shown: dict[str, str] = {}
        while "stop" not in shown:
            line = server.stderr.readline()
            label, _, text = line.strip().partition("  ")
            shown[label] = text.strip()
            assert len(line) <= 100 or label in {"try it", "console"} or " console " in line
        assert shown["MCP endpoint"].endswith("/mcp")
        assert "/-/console/?token=" in shown["console"]
        words = shlex.split(shown["try it"])
        called = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert called.stdout == "It is noon.\n", called.stderr
        server.terminate()
        assert "stopped" in server.stderr.read()


def test_json_logs_contain_no_other_lines(config: Path) -> None:
    with started("serve", "--http", "127.0.0.1:0", cwd=config) as server:
        assert server.stderr is not None
        events: list[str] = []
        for line in server.stderr:
            events.append(json.loads(line)["event"])
            if events[-1] == "console":
                server.terminate()
    if missing_facilities():
        assert events.pop(1) == "facilities missing"
    assert events == ["loaded", "listening", "console", "stopping", "stopped"]
