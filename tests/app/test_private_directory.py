"""The directory of a supervisor is removed at its end, or by the next supervisor."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest

from gateway.app.workers.supervisor import private_directory

HOLD: Final = """
import sys
from gateway.app.workers.supervisor import private_directory

with private_directory() as path:
    print(path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_directories_of_killed_supervisors_are_removed(temporary: Path) -> None:
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        killed, living = (Path(each.stdout.readline().strip()) for each in holders if each.stdout is not None)
        (killed / "0.sock").touch()
        holders[0].kill()
        holders[0].wait()
        stranger = temporary / "mcp-gateway-workers-x"
        stranger.mkdir()
        with private_directory() as own:
            assert (own.stat().st_mode & 0o777, own.parent) == (0o700, temporary)
            assert sorted(temporary.iterdir()) == sorted([living, own, stranger])
        assert not own.exists()
    finally:
        for each in holders:
            each.kill()
            each.communicate()
