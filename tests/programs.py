"""Programs that tests need: without them a test is skipped, with the reason, and fails in CI, which installs them."""

import os
import shutil
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

import pytest

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import Sandbox
from gateway.executors.shell.sandbox import compile_sandbox
from tests.executors.recording import OneFile

IS_PORTABLE: Final = os.environ.get("MCP_GATEWAY_TEST_PORTABLE") == "true"
"""Whether this run hides facilities of Linux."""
linux_only: Final = pytest.mark.skipif(IS_PORTABLE, reason="uses a facility of Linux that this run hides")


def is_running(pid: int) -> bool:
    """Return whether a process runs. Zombies do not, if /proc shows them."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def need(program: str) -> str:
    """The path of a program."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    return path or do_without(f"needs the program {program}")


def need_named_by(variable: str, *, what: str) -> str:
    """Return the path of a program that Debian does not package and that an environment variable names."""
    return os.environ.get(variable) or do_without(f"{variable} does not name {what} (CONTRIBUTING.md)")


@cache
def need_sandboxes() -> None:
    """Bubblewrap, on a machine that lets it work."""
    problems = Problems(OneFile(Path("/")))
    compile_sandbox(Sandbox(), cwd=None, env=(), problems=problems)
    for problem in problems:
        do_without(problem.message)


def do_without(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
