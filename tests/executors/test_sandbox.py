"""Sandboxed children. Attacks are in `tests/attacks`."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.config.models.backends import ProcessLimits, Sandbox
from gateway.errors import ExecutionError
from gateway.executors.invocation import Executor, RawOutput
from gateway.executors.shell.launcher import compile_limits
from gateway.executors.shell.sandbox import compile_sandbox
from gateway.json_types import JsonObject
from gateway.processes.process_table import child_pids, child_state
from tests.executors.recording import RecordingContext, RecordingPermit, make_invocation, make_scope
from tests.executors.shell_tool import Tool, failure_of, text_of
from tests.programs import need_sandboxes

PYTHON = os.path.realpath(sys.executable)


@pytest.fixture(autouse=True)
def before() -> Iterator[frozenset[int]]:
    """Children of other tests. Orphans of this test are children of this process too (subreaper)."""
    need_sandboxes()
    before = frozenset(child_pids())
    yield before
    for pid in frozenset(child_pids()) - before:
        if (found := child_state(pid)) and found[0]:
            os.waitpid(pid, 0)


def boxed(script: str, /, **config: object) -> JsonObject:
    return {"script": script, "sandbox": {}, **config}


async def test_script_in_a_sandbox_has_its_inputs(tool: Tool) -> None:
    script = 'echo "$INPUT_A"; cat "$INPUTS_FILE"; cat'
    assert text_of(await tool(boxed(script, stdin="[{{ a }}]"), a="x y")) == 'x y\n{"a":"x y"}[x y]'


async def test_sandboxed_command_runs_in_an_empty_directory(tool: Tool) -> None:
    (tool.folder / "config.yaml").write_text("secret")
    command = ["sh", "-c", 'pwd; ls -A; touch new || printf %s "$1"', "sh", "{{ a }}"]
    assert text_of(await tool({"command": command, "sandbox": {}}, a="x")) == f"{tool.folder}\nx"


async def test_sandbox_returns_exit_codes_and_signals(tool: Tool) -> None:
    assert failure_of(await tool(boxed("echo out; exit 3"))).startswith("The command failed with exit code 3.")
    assert "exit code 137" in failure_of(await tool(boxed("kill -KILL $$")))
    outcome = await tool(boxed("echo no >&2; exit 1", success_codes=[1]))
    assert isinstance(outcome, RawOutput)
    assert outcome.variables == {"exit_code": 1, "stderr": "no\n"}


async def test_listed_paths_are_visible(tool: Tool) -> None:
    for name in ("in", "out", "other"):
        (tool.folder / name).mkdir()
        (tool.folder / name / "file").write_text(name)
    sandbox = {"readable": ["in"], "writable": [str(tool.folder / "out")]}
    script = "cat in/file out/file; echo new > out/new; ! cat other/file; ! touch in/new"
    outcome = await tool({"script": script, "sandbox": sandbox})
    assert text_of(outcome) == "inout"
    assert (tool.folder / "out" / "new").read_text() == "new\n"
    assert not (tool.folder / "in" / "new").exists()


async def test_nested_readable_and_writable_paths_keep_their_modes(tool: Tool) -> None:
    (tool.folder / "a" / "b" / "c").mkdir(parents=True)
    sandbox = {"readable": ["a", "a/b/c"], "writable": ["a/b"]}
    script = "! touch a/x 2>&-; touch a/b/x; ! touch a/b/c/x 2>&-"
    text_of(await tool({"script": script, "sandbox": sandbox}))
    found = {str(path.relative_to(tool.folder / "a")) for path in (tool.folder / "a").rglob("*")}
    assert found == {"b", "b/x", "b/c"}


async def test_literal_cwd_is_visible_and_a_callers_cwd_is_not(tool: Tool) -> None:
    (tool.folder / "sub").mkdir()
    (tool.folder / "sub" / "file").touch()
    assert text_of(await tool(boxed("ls", cwd="sub"))) == "file\n"
    assert text_of(await tool(boxed("ls -A", cwd=str(tool.folder)))).split() == ["sub", "temporary"]
    with pytest.raises(ExecutionError, match=r"Can't chdir to .*sub: No such file or directory"):
        await tool(boxed("ls", cwd="{{ a }}"), a="sub")
    named = {"script": "ls", "cwd": "{{ a }}", "sandbox": {"readable": ["."]}}
    assert text_of(await tool(named, a="sub")) == "file\n"


async def test_root_as_cwd_does_not_show_the_whole_system(tool: Tool) -> None:
    assert "root" not in text_of(await tool(boxed("ls", cwd="/"))).split()
    everything = {"script": "ls; ls -d /proc/[0-9]*; ! touch /usr/x", "cwd": "/", "sandbox": {"readable": ["/"]}}
    shown = text_of(await tool(everything)).split()
    assert "root" in shown
    assert len([name for name in shown if name.startswith("/proc/")]) <= 4


async def test_system_directory_can_be_readable(tool: Tool) -> None:
    (tool.folder / "sub").mkdir()
    for readable in (["/etc"], ["/etc", "/etc/ssl", "/usr"], ["/"], ["/bin", "/usr/share"], ["/", "/etc"]):
        config = boxed("cat /etc/fstab /etc/passwd | grep -c root; pwd", cwd="sub")
        said = text_of(await tool({**config, "sandbox": {"readable": readable}}))
        assert said.endswith(f"\n{tool.folder}/sub\n"), said


async def test_program_named_by_a_path_is_visible(tool: Tool) -> None:
    program = tool.folder / "bin" / "greet"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "hello $1"; ls -A "$(dirname "$0")"')
    program.chmod(0o755)
    (program.parent / "other").touch()
    for path in ("bin/greet", "./bin/../bin/greet", str(program)):
        assert text_of(await tool({"command": [path, "{{ a }}"], "sandbox": {}}, a="you")) == "hello you\ngreet\n"
    with pytest.raises(ExecutionError, match=r"^bwrap: execvp bin/none: No such file"):
        await tool({"command": ["bin/none"], "sandbox": {}})
    with pytest.raises(ExecutionError, match=r"^bwrap: execvp none: No such file"):
        await tool({"command": ["none"], "sandbox": {}, "success_codes": [0, 1]})


async def test_temporary_files_are_private_to_the_call(tool: Tool) -> None:
    script = 'echo "$TMPDIR $HOME"; find /tmp -type f; echo x > "$(mktemp)"; cd; touch mine; find . -type f | wc -l'
    for _ in range(2):
        first, *files, count = text_of(await tool(boxed(script))).splitlines()
        assert (first, int(count)) == ("/tmp /tmp", len(files) + 2)
        assert {Path(file).name for file in files} <= {"script", "inputs.json"}
    outcome = await tool(boxed("echo $TMPDIR $HOME", env={"TMPDIR": "/elsewhere", "HOME": "{{ a }}"}), a="h")
    assert text_of(outcome) == "/elsewhere h\n"


async def test_temporary_files_are_bounded(tool: Tool) -> None:
    for place in ("/tmp/x", "/dev/shm/x"):
        fill = f"head -c 80000000 /dev/zero > {place}"
        assert "No space left on device" in failure_of(await tool(boxed(fill)))
        text_of(await tool({"script": fill, "sandbox": {"tmp_size": "100MB"}}))


async def test_planted_library_is_not_loaded_outside(tool: Tool) -> None:
    """Loader variables apply to the command only, and its PATH does not select bubblewrap."""
    (tool.folder / "out").mkdir()
    (tool.folder / "out" / "bwrap").write_text("#!/bin/sh\necho outside > outside")
    (tool.folder / "out" / "bwrap").chmod(0o755)
    (tool.folder / "out" / "libc.so.6").write_text("no library")
    out = str(tool.folder / "out")
    env = {"LD_LIBRARY_PATH": out, "LD_PRELOAD": "", "PATH": f"{out}:{os.environ['PATH']}"}
    for limits in ({}, {"limits": {"cpu": 5}}):
        config = {"sandbox": {"writable": ["out"]}, "env": env, **limits}
        with pytest.raises(ExecutionError, match=r"none.*: No such file"):
            await tool({"command": ["none"], **config})
        text = failure_of(await tool({"command": ["true"], **config}))
        assert "libc.so.6" in text, "the command did not load the library either"
    assert not (tool.folder / "outside").exists()


async def test_missing_program_with_limits_is_named(tool: Tool) -> None:
    with pytest.raises(ExecutionError, match=r"^prlimit: failed to execute none: No such file"):
        await tool({"command": ["none"], "sandbox": {}, "limits": {"memory": "100MiB"}})


def test_processes_are_counted_by_sandbox() -> None:
    """Run as a user without root, to whom the limit applies, with other processes."""
    scope = make_scope(folder=Path("/"))
    shim = compile_limits(ProcessLimits(processes=8), scope.problems)
    sandbox = compile_sandbox(Sandbox(), cwd=None, env=(), problems=scope.problems)
    assert sandbox is not None
    become = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    others = [subprocess.Popen([*become, "sleep", "60"]) for _ in range(10)]
    try:
        before = [*become, *sandbox.wrapper(program="sh", directory="/", folder=None), *shim]
        for count, is_fine in ((2, True), (20, False)):
            script = f"for n in $(seq {count}); do sleep 1 & done; echo all"
            done = subprocess.run([*before, "sh", "-c", script], capture_output=True, timeout=20, check=False)
            assert (done.stdout == b"all\n") is is_fine, done
            assert is_fine or "fork" in done.stderr.decode().lower(), done
    finally:
        for other in others:
            other.kill()
            other.wait()


async def test_sandboxed_lines_are_progress(tool: Tool, context: RecordingContext) -> None:
    config = boxed("for i in 1 2 3; do echo $i; done", progress="stdout")
    await tool.compiled(config).execute(make_invocation(context=context))
    assert "3" in str(context.progressed[-1])


async def nothing_left(before: frozenset[int]) -> None:
    """Wait until only earlier children are left."""
    async with asyncio.timeout(30):
        while [found for pid in child_pids() if pid not in before and (found := child_state(pid)) and not found[0]]:
            await asyncio.sleep(0.01)


async def ended_when_ready(executor: Executor) -> None:
    """Run a command until its deadline, which is long enough to get `ready`."""
    for seconds in (0.5, 4.0, 30.0):
        permit = RecordingPermit()
        with pytest.raises(ExecutionError, match=rf"^'sh' timed out after {seconds} s") as caught:
            await executor.execute(make_invocation(permit=permit, timeout=seconds))
        await permit.freed()
        if str(caught.value).endswith("\nready"):
            return
    raise AssertionError(str(caught.value))


async def test_sandboxed_command_can_clean_up_at_the_deadline(tool: Tool, before: frozenset[int]) -> None:
    (tool.folder / "out").mkdir()
    script = "trap 'echo asked > out/asked; exit' TERM; echo ready; while :; do sleep 0.05; done"
    executor = tool.compiled({"script": script, "sandbox": {"writable": ["out"]}})
    await ended_when_ready(executor)
    assert (tool.folder / "out" / "asked").read_text() == "asked\n"
    await nothing_left(before)


async def test_sandbox_that_ignores_term_is_killed_with_its_processes(tool: Tool, before: frozenset[int]) -> None:
    script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo ready; sleep 600' & (sleep 600 &); sleep 600; sleep 600"
    await ended_when_ready(tool.compiled(boxed(script)))
    await nothing_left(before)


def test_sandbox_ends_with_the_daemon(tmp_path: Path) -> None:
    scope = make_scope(folder=tmp_path)
    (tmp_path / "out").mkdir()
    config = Sandbox(writable=["out"])
    sandbox = compile_sandbox(config, cwd=None, env=(), problems=scope.problems)
    assert sandbox is not None
    argv = [*sandbox.wrapper(program="sh", directory=str(tmp_path), folder=None), "sh", "-c", "echo up; exec sleep 600"]
    daemon = subprocess.Popen(["sh", "-c", '"$@" & wait', "sh", *argv], stdout=subprocess.PIPE, start_new_session=True)
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == b"up\n"
    daemon.send_signal(signal.SIGKILL)
    assert daemon.communicate(timeout=30)[0] == b""  # end of file: the pipe has no writer


# The file


@pytest.mark.parametrize(
    ("sandbox", "message"),
    [
        ({"readable": ["none"]}, "shell.sandbox.readable.0: `none` does not exist"),
        ({"writable": [".", "/none"]}, "shell.sandbox.writable.1: `/none` does not exist"),
        ({"writable": ["/"]}, "shell.sandbox.writable: `/` makes everything writable"),
        (
            {"readable": ["/proc/1"]},
            "shell.sandbox.readable.0: must not be in /proc, /dev or /tmp, because a sandbox has its own",
        ),
        (
            {"writable": ["/tmp"]},
            "shell.sandbox.writable.0: must not be in /proc, /dev or /tmp, because a sandbox has its own",
        ),
        ({"writable": ["."]}, "shell.sandbox.writable: contains the configuration file's directory"),
        ({"writable": ["/usr"], "readable": ["/usr/share/doc"]}, "is not directly in the writable `/usr`"),
    ],
)
async def test_sandbox_mistake_is_a_load_error(tool: Tool, sandbox: JsonObject, message: str) -> None:
    problems = tool.problems({"command": ["true"], "sandbox": sandbox})
    assert any(message in problem for problem in problems), problems


@pytest.fixture
def bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Replace bubblewrap with a program that gets the path of the real one."""

    def write(script: str) -> Path:
        programs = tmp_path / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "bwrap").write_text(f"#!/bin/sh\nREAL={shutil.which('bwrap', path=path)}\n{script}")
        (programs / "bwrap").chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{path}")
        return tmp_path

    path = os.environ["PATH"]
    return write


async def test_missing_sandbox_support_is_reported_at_load(tool: Tool, bwrap: Callable[[str], Path]) -> None:
    bwrap('echo "bwrap: No permissions to create new namespace"; exit 1')
    [problem] = tool.problems(boxed("true"))
    assert "shell.sandbox: bubblewrap cannot create a sandbox (No permissions to create new namespace). " in problem


async def test_forbidden_namespaces_name_the_settings(tool: Tool, bwrap: Callable[[str], Path]) -> None:
    """The program runs in a sandbox that forbids user namespaces."""
    bwrap('exec $REAL --unshare-user --disable-userns --dev-bind / / -- $REAL "$@"')
    [problem] = tool.problems(boxed("true"))
    assert "shell.sandbox: bubblewrap cannot create a sandbox (" in problem
    assert "user.max_user_namespaces" in problem


async def test_missing_bubblewrap_names_its_package(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    [problem] = tool.problems(boxed("true"))
    assert problem.endswith(
        "shell.sandbox: requires the program `bwrap`, which is not installed. "
        "Install the package bubblewrap (apt-get, dnf or apk)"
    )


@pytest.mark.parametrize(("script", "problems"), [('exec $REAL "$@"', 0), ("exit 1", 1)], ids=["working", "broken"])
async def test_sandbox_support_is_tested_once(
    tool: Tool, bwrap: Callable[[str], Path], script: str, problems: int
) -> None:
    folder = bwrap(f'echo "$1" >> "$(dirname "$0")/log"; {script}')
    for _ in range(200):
        assert len(tool.problems(boxed("true"))) == problems
    assert len((folder / "programs" / "log").read_text().splitlines()) == 1


async def test_set_user_id_program_has_no_effect_in_a_sandbox(tool: Tool) -> None:
    (tool.folder / "out").mkdir()
    script = f"grep ' {tool.folder}/out ' /proc/self/mountinfo | cut -d' ' -f6"
    outcome = await tool({"script": script, "sandbox": {"writable": ["out"]}})
    assert "nosuid" in text_of(outcome).strip().split(",")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a daemon of root")
async def test_writable_set_user_id_place_as_root_is_a_warning(tool: Tool) -> None:
    """The directory is mounted without nosuid."""
    (tool.folder / "out").mkdir()
    problems = tool.problems({"command": ["true"], "sandbox": {"writable": ["out"]}})
    works_outside = not os.statvfs(tool.folder).f_flag & os.ST_NOSUID
    assert any("set-user-ID" in problem for problem in problems) == works_outside
