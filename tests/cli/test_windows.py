"""On Windows, every command explains in one message that it needs WSL or the container image."""

import subprocess
import sys

import pytest

WITHOUT_MODULES = """
import runpy, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios", "uvloop"):
    sys.modules[name] = None
runpy.run_module("gateway", run_name="__main__", alter_sys=True)
"""
ON_WINDOWS = """
import sys
sys.platform = "win32"
from gateway.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("start", [WITHOUT_MODULES, ON_WINDOWS], ids=["missing modules", "sys.platform"])
@pytest.mark.parametrize("words", [[], ["--version"], ["validate", "x.yaml"], ["client-config", "claude"], ["serve"]])
def test_windows_is_rejected_in_three_lines(start: str, words: list[str]) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", start, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 1
    assert finished.stdout == ""
    assert len(finished.stderr.splitlines()) <= 3
    assert "Windows" in finished.stderr
    assert "WSL" in finished.stderr
    assert "container image" in finished.stderr
