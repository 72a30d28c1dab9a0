"""Programs that tests need. Without them, a test is skipped, or fails in CI."""

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
"""Whether names and files that only exist on Linux are hidden (`.ci/run`, part `portable`)."""
linux_only: Final = pytest.mark.skipif(IS_PORTABLE, reason="uses a facility of Linux that this run hides")


def is_running(pid: int) -> bool:
    """Return whether a process exists and, if there is /proc, is not a zombie."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def need(program: str) -> str:
    """Return the path of a program."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    return path or skip_or_fail(f"needs the program {program}")


def need_named_by(variable: str, *, what: str) -> str:
    """Return the path in an environment variable, for programs that Debian does not package."""
    return os.environ.get(variable) or skip_or_fail(f"{variable} does not name {what} (CONTRIBUTING.md)")


@cache
def need_sandboxes() -> None:
    """Skip the test, or fail it in CI, if sandboxes do not work on this machine."""
    problems = Problems(OneFile(Path("/")))
    compile_sandbox(Sandbox(), cwd=None, env=(), problems=problems)
    for problem in problems:
        skip_or_fail(problem.message)


def skip_or_fail(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
