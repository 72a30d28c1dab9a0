"""Programs that tests need: without them a test is skipped, with the reason, and fails in CI, which installs them."""

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from gateway.config.backends import Sandbox
from gateway.config.problems import Problems
from gateway.executors.shell.sandbox import compile_sandbox
from gateway.executors.shell.sandbox_probe import SandboxProbe
from tests.executors.recording import OneFile

_PROBE: Final = SandboxProbe()


def need(program: str) -> None:
    if shutil.which(program) is None:
        _do_without(f"needs the program {program}")


def need_sandboxes() -> None:
    """Bubblewrap, on a machine that lets it work."""
    problems = Problems(OneFile(Path("/")))
    compile_sandbox(Sandbox(), cwd=None, problems=problems, probe=_PROBE)
    for problem in problems:
        _do_without(problem.message)


def _do_without(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
