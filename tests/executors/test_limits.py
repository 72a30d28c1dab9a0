"""`shell.limits`, and the messages of calls that reached a limit."""

import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.config.models.backends import ProcessLimits
from gateway.errors import ExecutionError
from gateway.executors.shell import launcher
from gateway.executors.shell.launcher import Launcher
from gateway.json_types import JsonObject
from tests.executors.shell_tool import Tool, failure_of, text_of
from tests.programs import linux_only, need

ALL: JsonObject = {"memory": "512MiB", "cpu": "1500ms", "file_size": "1MB"}

WRITER = "import sys; file = open(sys.argv[1], 'wb', 0); [file.write(bytes(600)) for _ in range(3)]"
"""Python ignores the signal, and gets an error."""


@pytest.fixture(autouse=True)
def _program() -> None:
    need("prlimit")


@linux_only
async def test_child_has_limits_from_its_start(tool: Tool) -> None:
    """The first program that runs reads its limits, so none ran without them."""
    lines = text_of(await tool({"command": ["cat", "/proc/self/limits"], "limits": ALL})).splitlines()
    limits = {line[:26].strip(): line[26:].split()[:2] for line in lines}
    assert limits["Max address space"] == ["536870912", "536870912"]
    assert limits["Max cpu time"] == ["2", "3"]
    assert limits["Max file size"] == ["1000000", "1000000"]
    assert limits["Max core file size"] == ["0", "0"]


async def test_forked_processes_have_limits(tool: Tool) -> None:
    script = "for n in 1 2 3 4 5 6 7 8; do (sh -c 'ulimit -v') & done; wait"
    assert text_of(await tool({"script": script, "limits": {"memory": "512MiB"}})).split() == ["524288"] * 8


async def test_call_without_limits_is_not_limited(tool: Tool) -> None:
    config: JsonObject = {"command": ["sh", "-c", "ulimit -f"]}
    assert text_of(await tool(config)) == text_of(await tool({**config, "limits": {}})) == "unlimited\n"


async def test_limit_of_zero_applies(tool: Tool) -> None:
    script = 'echo much > "$INPUTS_FILE.more"'
    assert "shell.limits.file_size" in failure_of(await tool({"script": script, "limits": {"file_size": 0}}))


async def test_child_below_its_limits_succeeds(tool: Tool) -> None:
    script = 'head -c 900000 /dev/zero > "$(dirname "$INPUTS_FILE")/file" && echo "$INPUT_A"'
    assert text_of(await tool({"script": script, "limits": ALL}, a="fine")) == "fine\n"


@pytest.mark.parametrize(
    ("key", "value", "script"),
    [
        ("cpu", "1s", "while :; do :; done"),
        ("file_size", "1KiB", 'head -c 2000 /dev/zero > "$INPUTS_FILE.more"'),
    ],
)
async def test_call_names_the_limit_that_it_reached(tool: Tool, key: str, value: object, script: str) -> None:
    text = failure_of(await tool({"script": script, "limits": {key: value}}))
    assert f"It reached its limit `shell.limits.{key}`." in text


@pytest.mark.parametrize(
    ("key", "value", "script", "said"),
    [
        # Two seconds of processor time.
        pytest.param("cpu", 1, "trap '' XCPU; while :; do :; done", "SIGKILL", marks=pytest.mark.build),
        ("memory", "64MB", "python3 -c 'x = bytes(10**9)'", "MemoryError"),
        ("file_size", 1000, f'python3 -c "{WRITER}" "$INPUTS_FILE.more"', "File too large"),
    ],
)
async def test_command_over_its_limit_fails(tool: Tool, key: str, value: object, script: str, said: str) -> None:
    assert said in failure_of(await tool({"script": script, "limits": {key: value}}))


async def test_other_failures_do_not_name_a_limit(tool: Tool) -> None:
    assert "limit" not in failure_of(await tool({"script": "echo no >&2; exit 3", "limits": ALL}))


@pytest.mark.parametrize(
    ("exit_code", "is_met"),
    [
        (-signal.SIGXCPU, True),
        (128 + signal.SIGXCPU, True),
        (-signal.SIGKILL, False),
        (-signal.SIGXFSZ, False),
        (1, False),
    ],
)
def test_limit_is_recognized_by_its_signal(exit_code: int, *, is_met: bool) -> None:
    launcher = Launcher(limits=ProcessLimits(cpu=timedelta(seconds=5)))
    assert (launcher.limit_met(exit_code) is not None) is is_met


async def test_missing_program_is_named(tool: Tool, tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match=r"^prlimit: failed to execute nope: No such file"):
        await tool({"command": ["nope"], "limits": ALL})
    (tmp_path / "text").touch(mode=0o600)
    with pytest.raises(ExecutionError, match=r"^prlimit: failed to execute \./text: Permission denied$"):
        await tool({"command": ["./text"], "limits": ALL})


async def test_failing_program_is_not_mistaken_for_the_limiter(tool: Tool) -> None:
    """A failing command is a normal failure with all output."""
    script = "echo out; echo 'prlimit: failed to execute it: No such file or directory' >&2; exit 127"
    assert "stdout:\nout" in failure_of(await tool({"script": script, "limits": ALL}))


async def test_limit_above_the_daemons_own_is_reduced(tool: Tool) -> None:
    config: JsonObject = {"command": ["sh", "-c", "ulimit -v"], "limits": {"memory": "1024GB"}}
    assert text_of(await tool(config)).strip() in {"unlimited", str(1024 * 10**9 // 1024)}


async def test_process_limit_as_root_is_a_warning(tool: Tool) -> None:
    [warning] = tool.problems({"command": ["true"], "limits": {"processes": 5}}) or [""]
    assert ("has no effect because the daemon runs as root" in warning) is (os.geteuid() == 0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root is not bound by it")
async def test_child_cannot_fork_endlessly(tool: Tool) -> None:
    script = "for n in 1 2 3 4 5 6 7 8; do sleep 1 & done; wait"
    text = failure_of(await tool({"script": script, "limits": {"processes": 1}}))
    assert "fork" in text.lower()


def test_limits_require_prlimit(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "which", lambda _name: None)
    [problem] = tool.problems({"command": ["true"], "limits": ALL})
    assert "shell.limits: requires the program `prlimit` (Linux). Install the package util-linux" in problem
