"""Tests for the state directory."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.state.state import StateDirectory, directory_of

CONFIG = Path("/etc/mcp-gateway/config.yaml")


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        ("/srv/state", {"STATE_DIRECTORY": "/var/lib/a"}, "/srv/state"),
        ("none", {"STATE_DIRECTORY": "/var/lib/a"}, None),
        (None, {"STATE_DIRECTORY": "/var/lib/a"}, "/var/lib/a"),
        (None, {"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}, "/var/lib/a"),
        (None, {"XDG_STATE_HOME": "/home/a/state"}, "/home/a/state/mcp-gateway/config-53767cc43179"),
    ],
)
def test_first_configured_directory_is_used(
    given: str | None, environ: Mapping[str, str], expected: str | None
) -> None:
    found = directory_of(given, config=CONFIG, environ=environ)
    assert found == (None if expected is None else Path(expected))


def test_default_directory_is_in_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    for environ in ({}, {"XDG_STATE_HOME": "relative"}):
        found = directory_of(None, config=CONFIG, environ=environ)
        assert found is not None
        assert found.parent == Path("/home/somebody/.local/state/mcp-gateway")


def test_files_with_the_same_name_have_separate_directories() -> None:
    environ = {"XDG_STATE_HOME": "/s"}
    first, second = (directory_of(None, config=Path(each), environ=environ) for each in ("/a/x.yaml", "/b/x.yaml"))
    assert first != second


def test_directory_is_private(tmp_path: Path) -> None:
    wanted = tmp_path / "a" / "b"
    with StateDirectory(wanted) as directory:
        assert directory.path == wanted
        assert wanted.stat().st_mode & 0o777 == 0o700
    wanted.chmod(0o755)
    with StateDirectory(wanted):
        assert wanted.stat().st_mode & 0o777 == 0o700


def test_second_daemon_uses_memory(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom gateway.state.state import StateDirectory\n"
        "with StateDirectory(Path(sys.argv[1])) as directory: print(directory.path, directory.problem)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with StateDirectory(tmp_path):
        second = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        assert second.stdout.strip() == f"None {tmp_path} is in use by another daemon"
    after = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert after.stdout.strip() == str(tmp_path)


def test_unusable_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with StateDirectory(tmp_path / "file" / "below") as directory:
        assert directory.path is None
        assert "Not a directory" in directory.problem
