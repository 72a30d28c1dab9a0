"""The benchmarks run with both servers. Their speed is not tested."""

import os
import subprocess
import sys
from typing import Final

import pytest

from tests.interop.official_clients import PROJECT, interpreter

pytestmark = pytest.mark.build

SECONDS: Final = 600
WORK: Final = (
    "content tool, session",
    "content tool, stdio",
    "list of 1,000 tools",
    "start to",
    "open GET stream",
    "creating a task",
    "session in Redis",
    "reload",
    "relayed to modern HTTP",
    "relayed to stdio",
    "of 100 upstreams",
)


def test_quick_run_measures_everything_and_leaves_no_process() -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--sdk", interpreter(2)]
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            table, errors = run.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            run.terminate()
            raise
    assert run.returncode == 0, errors
    assert [work for work in WORK if work not in table] == []
    with pytest.raises(ProcessLookupError):  # its process group is empty
        os.killpg(run.pid, 0)
