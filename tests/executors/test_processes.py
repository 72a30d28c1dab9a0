"""Calls end in time and leave no process, whatever their children do."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
import uvloop
from msgspec.structs import replace

from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.processes.pipes import BoundedBuffer, InputBuffer
from gateway.processes.process_table import MARKER, ORPHAN, Descendants, child_pids, own_identity
from gateway.processes.process_tree import STATUS_LOST, Command
from gateway.processes.processes import Processes
from tests.executors.recording import RecordingPermit
from tests.programs import linux_only
from tests.waiting import until, wait_until

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

GRACE = 0.2

# Daemonizes: forks twice, with a new session in between.
DAEMONIZE = "import os, sys, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep({})"


# Repeatedly starts a session, forks and exits, then sleeps.
HOP = (
    "import os, sys, time\n"
    "for _ in range({}):\n    os.setsid() if os.getsid(0) != os.getpid() else None\n    if os.fork(): os._exit(0)\n"
    "time.sleep({})"
)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run[Any]]:
    """Run a coroutine on each kind of loop, and check that no task is left."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None

    async def bounded(work: Coroutine[Any, Any, T]) -> T:
        async with asyncio.timeout(30):
            result = await work
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    with asyncio.Runner(loop_factory=factory) as runner:
        yield lambda work: runner.run(bounded(work))


@pytest.fixture
def mark() -> Iterator[str]:
    """A text in the environment of all processes of a test, which must not outlive the test."""
    mark = uuid4().hex
    yield mark
    left = alive(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


@pytest.fixture
def inherited() -> set[int]:
    """Orphans of daemons from earlier tests, whose subreaper is the test process."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    return set(child_pids())


def alive(mark: str) -> list[int]:
    """Processes with the mark in their environment, without zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def command(*argv: str, mark: str = "", stdin: bytes = b"", directory: str = "/") -> Command:
    environment = {"PATH": os.environ["PATH"], "MARK": mark}
    return Command(argv=argv, environment=environment, directory=directory, stdin=stdin)


def shell(script: str, *, mark: str = "", stdin: bytes = b"") -> Command:
    return command("sh", "-c", script, mark=mark, stdin=stdin)


async def call(
    processes: Processes,
    what: Command,
    *,
    seconds: float = 20,
    permit: RecordingPermit | None = None,
    out: BoundedBuffer | None = None,
    afterwards: Callable[[], None] = lambda: None,
) -> int:
    deadline = asyncio.get_running_loop().time() + seconds
    if out is not None:
        what = replace(what, stdout=out.feed)
    return await processes.run(what, deadline=deadline, permit=permit or RecordingPermit(), afterwards=afterwards)


def test_child_gets_input_and_returns_output_and_exit_code(run: Run[int]) -> None:
    out, err = BoundedBuffer(1000), BoundedBuffer(1000)

    async def work() -> int:
        async with Processes() as processes:
            what = shell("cat; echo no >&2; exit 3", stdin=b"in")
            return await call(processes, replace(what, stdout=out.feed, stderr=err.feed))

    assert run(work()) == 3
    assert (out.data, err.data) == (b"in", b"no\n")


def test_command_does_not_show_its_environment_or_input() -> None:
    what = replace(command("cat", stdin=b"s3cr3t"), environment={"TOKEN": "s3cr3t"})
    assert repr(what) == "Command('cat')"


def test_command_is_not_started_after_its_deadline(run: Run[None], tmp_path: Path) -> None:
    ended: list[int] = []

    async def work() -> None:
        async with Processes() as processes:
            what = command("touch", str(tmp_path / "begun"))
            with pytest.raises(DeadlineExceededError, match="The start of 'touch'"):
                await call(processes, what, seconds=0, afterwards=lambda: ended.append(1))

    run(work())
    assert (ended, list(tmp_path.iterdir())) == ([1], [])


@linux_only
def test_child_that_other_code_has_reaped_has_no_exit_code(run: Run[int]) -> None:
    async def work() -> int:
        out = BoundedBuffer(100)
        async with Processes() as processes:
            running = asyncio.create_task(call(processes, shell("echo $$; exec sleep 60"), out=out))
            await until(lambda: out.data.endswith(b"\n"))
            os.kill(int(out.data), signal.SIGKILL)
            os.waitpid(int(out.data), 0)  # noqa: ASYNC222 - the loop must not see the exit first
            return await running

    assert run(work()) == STATUS_LOST


def test_input_waits_for_a_slow_reader(run: Run[bytes]) -> None:
    sent, (reading, writing) = os.urandom(200_000), os.pipe()
    out, pipe = os.fdopen(reading, "rb", buffering=0), os.fdopen(writing, "wb", buffering=0)

    async def work() -> bytes:
        given = InputBuffer(limit=len(sent))
        given.attach(pipe)
        assert given.write(sent[:65_536])  # fills the pipe
        await asyncio.sleep(0)
        assert given.write(sent[65_536:])
        await asyncio.sleep(0)
        assert not given.write(sent)
        given.close()
        return await asyncio.to_thread(out.read)

    with out, pipe:
        assert run(work()) == sent


def test_children_of_another_instance_are_not_orphans(run: Run[int]) -> None:
    async def work() -> int:
        async with Processes() as processes, Processes() as other:
            running = asyncio.create_task(call(processes, shell("sleep 0.5; exit 7")))
            while not running.done():
                assert await call(other, shell("true")) == 0  # searches orphans at its end
            return await running

    assert run(work()) == 7


@linux_only
def test_child_that_is_being_started_is_not_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARKER, "")  # restored after `open`
    descendants, other = Descendants(), Descendants()
    descendants.open()
    other.open()
    for _ in range(20):
        environment = {**os.environ, **other.new_marker()}
        with subprocess.Popen(["sleep", "60"], env=environment, start_new_session=True) as child:
            # Popen returns before execve(2) has set the arguments and the environment of the child.
            orphans = descendants.scan().get(ORPHAN, set())
            child.kill()
        assert child.pid not in orphans


def test_signal_is_returned_as_negative_number(run: Run[int]) -> None:
    async def work() -> int:
        async with Processes() as processes:
            return await call(processes, shell("kill -KILL $$"))

    assert run(work()) == -signal.SIGKILL


@linux_only
def test_child_without_input_reads_dev_null(run: Run[int]) -> None:
    out = BoundedBuffer(1000)

    async def work() -> int:
        async with Processes() as processes:
            return await call(processes, shell("cat; readlink /proc/self/fd/0"), out=out)

    assert run(work()) == 0
    assert out.data == b"/dev/null\n"


@linux_only
def test_child_has_no_descriptors_of_the_daemon(run: Run[int]) -> None:
    out = BoundedBuffer(1000)
    inheritable = os.dup2(0, 100, inheritable=True)

    async def work() -> int:
        async with Processes() as processes:
            return await call(processes, command("ls", "/proc/self/fd"), out=out)

    run(work())
    os.close(inheritable)
    assert out.data == b"0\n1\n2\n3\n"  # the fourth belongs to ls


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("trap 'yes' TERM; while :; do sleep 0.01; done", id="floods when told to end"),
        pytest.param(f"{sys.executable} -c '{DAEMONIZE.format(600)}'; sleep 600", id="daemonizes"),
        pytest.param("f() { (setsid sh -c 'trap \"\" TERM; sleep 600' &) ; }; f; f; sleep 600", id="all of it"),
    ],
)
@linux_only
def test_timeout_is_returned_at_once_and_the_permit_is_held_until_the_tree_ends(
    run: Run[None], mark: str, script: str
) -> None:
    async def work() -> None:
        permit, gone = RecordingPermit(), asyncio.Event()
        async with Processes(grace_seconds=GRACE) as processes:
            with pytest.raises(DeadlineExceededError, match=r"^'sh' timed out after 0.3 s"):
                await call(processes, shell(script, mark=mark), seconds=0.3, permit=permit, afterwards=gone.set)
            assert (processes.running, processes.ending) == (0, 1)
            assert not gone.is_set()
            await permit.freed()
            assert not alive(mark)
            assert gone.is_set()
            assert (processes.running, processes.ending) == (0, 0)

    run(work())


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("sleep 600 &", id="background"),
        pytest.param("(trap '' TERM HUP; sleep 600 &)", id="ignores TERM"),
        pytest.param(f"{sys.executable} -c '{DAEMONIZE.format(600)}'", id="daemonizes"),
    ],
)
@pytest.mark.parametrize("exit_code", [0, 4])
@linux_only
def test_call_ends_with_its_main_process_and_ends_the_others(
    run: Run[None], mark: str, inherited: set[int], script: str, exit_code: int
) -> None:
    out = BoundedBuffer(1000)

    async def work() -> None:
        permit = RecordingPermit()
        async with Processes(grace_seconds=GRACE) as processes:
            whole = shell(f"{script}\necho said; exit {exit_code}", mark=mark)
            assert await call(processes, whole, permit=permit, out=out) == exit_code
            await permit.freed()
            assert not alive(mark)
            await until(lambda: set(child_pids()) <= inherited)

    run(work())
    assert out.data == b"said\n"


def test_output_of_a_background_process_is_read_briefly(
    run: Run[int], mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.processes.process_tree.LINGER_SECONDS", 2.0)  # more than a busy machine needs
    out = BoundedBuffer(1000)

    async def work() -> int:
        permit = RecordingPermit()
        async with Processes() as processes:
            background = shell("(sleep 0.03; echo late; sleep 600; echo never) & echo soon", mark=mark)
            exit_code = await call(processes, background, permit=permit, out=out)
            await permit.freed()
            return exit_code

    assert run(work()) == 0
    assert out.data == b"soon\nlate\n"


def test_flood_of_output_does_not_block_the_loop_or_grow_memory(run: Run[int], mark: str) -> None:
    out = BoundedBuffer(10_000)

    async def work() -> int:
        turns = 0
        async with Processes(grace_seconds=GRACE) as processes:
            task = asyncio.create_task(call(processes, shell("yes", mark=mark), seconds=30, out=out))
            while out.omitted < 10_000_000 and not task.done():
                await asyncio.sleep(0)
                turns += 1
            assert task.cancel()
            await asyncio.wait([task])
        return turns

    assert run(work()) > 100
    assert len(out.data) == 10_000


@pytest.mark.parametrize("script", ["exec <&-; sleep 0.1", "true", "head -c 10", "sleep 0.2"])
def test_child_that_does_not_read_its_input_can_exit(run: Run[int], script: str) -> None:
    async def work() -> int:
        async with Processes() as processes:
            return await call(processes, shell(script, stdin=b"x" * 10_000_000))

    assert run(work()) == 0


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            command("no-such-program"),
            "the program 'no-such-program' does not exist",
        ),
        (
            command("a b"),
            "the program 'a b' does not exist. If it has argum",
        ),
        (command("/etc/passwd"), "the program '/etc/passwd' is not executable by this user"),
        (command("/"), "the program '/' is not executable by this user"),
        (command("ls", directory="/no/such"), "cannot change to the working directory '/no/such': No such file"),
        (command("ls", directory="/etc/passwd"), "cannot change to the working directory '/etc/passwd': Not a dir"),
        (command("ls", *["x" * 100_000] * 30), "the arguments of 'ls' are too long. Use `stdin`, which has no such"),
        (command("ls", "a\0b"), "the program 'ls' cannot be started: embedded null byte"),
        (command("ls", "\ud800"), "the program 'ls' cannot be started: "),
    ],
)
def test_command_that_cannot_start_is_an_error_with_the_reason(run: Run[None], what: Command, message: str) -> None:
    async def work() -> None:
        gone = asyncio.Event()
        async with Processes() as processes:
            with pytest.raises(ExecutionError) as raised:
                await call(processes, what, afterwards=gone.set)
            assert str(raised.value).startswith(message)
            assert gone.is_set()
            assert processes.running == 0

    run(work())


def test_missing_interpreter_of_a_script_is_named(run: Run[None], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)

    async def work() -> None:
        async with Processes() as processes:
            with pytest.raises(
                ExecutionError, match=r"^the interpreter in the first line of '.*script' does not exist"
            ):
                await call(processes, command(str(script)))

    run(work())


def test_program_is_the_first_on_its_current_path(run: Run[None], tmp_path: Path) -> None:
    """The program is searched on PATH at each start."""
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first, second):
        directory.mkdir()
    what = Command(argv=["which-one"], environment={"PATH": f"{first}:{second}:relative:/bin"}, directory="/")

    def install(directory: Path) -> None:
        program = directory / "new"
        program.write_text(f"#!/bin/sh\necho {directory.name}\n")
        program.chmod(0o755)
        program.rename(directory / "which-one")

    async def work() -> None:
        async with Processes() as processes:

            async def said() -> bytes:
                out = BoundedBuffer(1000)
                await call(processes, what, out=out)
                return out.data.strip()

            with pytest.raises(ExecutionError, match="'which-one' does not exist"):
                await said()
            install(second)
            assert await said() == b"second"
            install(first)
            while await said() != b"first":
                await asyncio.sleep(0.05)
            (first / "which-one").unlink()
            assert await said() == b"second"
            (second / "which-one").chmod(0o600)
            with pytest.raises(ExecutionError, match="'which-one' is not executable"):
                await said()

    run(work())


def test_text_file_without_a_shebang_is_a_clear_error(run: Run[None], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o700)

    async def work() -> None:
        async with Processes() as processes:
            with pytest.raises(ExecutionError, match="cannot be started: Exec format error"):
                await call(processes, command(str(script)))

    run(work())


def test_all_trees_are_ended_at_exit(run: Run[None], mark: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with asyncio.timeout(15), Processes(grace_seconds=GRACE) as processes:
            ready = f"touch {tmp_path}/$$"  # after setting the trap
            stubborn = shell(f"trap '' TERM; (setsid sleep 600 &); {ready}; while :; do sleep 0.1; done", mark=mark)
            waiting = [asyncio.create_task(call(processes, stubborn)) for _ in range(3)]
            await until(lambda: len(list(tmp_path.iterdir())) == 3)
        assert not alive(mark)
        assert await asyncio.gather(*waiting) == [-signal.SIGKILL] * 3
        with pytest.raises(ExecutionError, match="the server is stopping"):
            await call(processes, shell("true"))

    run(work())


@pytest.mark.parametrize(
    "script",
    [
        "(unset MCP_GATEWAY_CALL; setsid sleep 600 &)",
        "bash -c '(exec -c setsid sleep 600 &)'",
        f"env -i {sys.executable} -c '{DAEMONIZE.format(600)}'",
        f"env -i {sys.executable} -c '{HOP.format(20, 600)}'",
    ],
)
@linux_only
def test_process_that_hides_its_origin_does_not_outlive_its_call(
    run: Run[None], inherited: set[int], script: str
) -> None:
    async def work() -> None:
        permit = RecordingPermit()
        async with Processes(grace_seconds=GRACE) as processes:
            assert await call(processes, shell(script), permit=permit) == 0
            await permit.freed()
            await until(lambda: set(child_pids()) <= inherited)

    run(work())


@linux_only
def test_orphan_is_kept_while_its_possible_call_runs(run: Run[None], inherited: set[int], mark: str) -> None:
    hiding = shell("(env -i setsid sleep 600 &)")

    async def work() -> None:
        permit = RecordingPermit()
        async with Processes(grace_seconds=GRACE) as processes:
            longer = asyncio.create_task(call(processes, shell("sleep 600", mark=mark), permit=permit))
            await until(lambda: alive(mark))
            await call(processes, hiding, permit=permit)
            await until(lambda: processes.orphans == 1)
            for _ in range(3):
                await call(processes, shell("true"))
            assert processes.orphans == 1
            longer.cancel()
            await permit.freed()
            await until(lambda: set(child_pids()) <= inherited)

    run(work())


@linux_only
def test_exit_status_of_other_children_is_not_taken(run: Run[None], mark: str) -> None:
    """These are children of threads, of the daemon's session, and children with a waiting parent."""
    environment = {**os.environ, "MARK": mark}

    def start(code: int, *, in_session: bool) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sh", "-c", f"exit {code}"], env={}, start_new_session=not in_session)

    async def work() -> None:
        async with Processes(grace_seconds=GRACE) as processes:
            later = start(9, in_session=True)
            of_a_thread = await asyncio.to_thread(start, 10, in_session=False)
            of_the_loop = await asyncio.create_subprocess_exec("sh", "-c", "exit 11", start_new_session=True)
            calls = [asyncio.create_task(call(processes, shell("(setsid true &); sleep 0.1 &"))) for _ in range(20)]
            assert await of_the_loop.wait() == 11
            await asyncio.wait(calls)
            assert living.poll() is None
            await until(lambda: processes.orphans_reaped >= 20)
            assert (later.wait(), of_a_thread.wait()) == (9, 10)

    with (
        subprocess.Popen(["sh", "-c", "exit 7"], env=environment) as in_session,
        subprocess.Popen(["sh", "-c", "exit 8"], env=environment, start_new_session=True) as earlier,
        subprocess.Popen(["cat"], env={}, start_new_session=True, stdin=subprocess.PIPE) as living,
    ):
        run(work())
        living.communicate()  # exits
        assert (in_session.wait(), earlier.wait(), living.wait()) == (7, 8, 0)


@linux_only
def test_orphan_of_a_plugins_child_is_not_ended(run: Run[None], mark: str) -> None:
    """It belongs to no call: for example, an agent that the plugin uses later."""

    def leave() -> None:
        subprocess.run(["setsid", "-f", "sleep", "600"], env={**os.environ, "MARK": mark}, check=True)

    async def work() -> None:
        async with Processes(grace_seconds=GRACE) as processes:
            leave()
            await until(lambda: alive(mark))
            for _ in range(3):
                await call(processes, shell("(setsid true &)"))
            assert processes.orphans_killed == 0
            for pid in alive(mark):
                os.kill(pid, signal.SIGKILL)
            await until(lambda: not alive(mark))

    run(work())


def resources() -> tuple[int, int, int, int]:
    """The numbers of descriptors, threads, tasks and children."""
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return descriptors, threading.active_count(), len(asyncio.all_tasks()), len(child_pids())


def test_calls_work_outside_the_main_thread(run: Run[None], mark: str) -> None:
    async def work() -> None:
        permit = RecordingPermit()
        async with Processes(grace_seconds=GRACE) as processes:
            assert await call(processes, shell("(setsid sleep 600 &); exit 5", mark=mark), permit=permit) == 5
            await permit.freed()

    thread = threading.Thread(target=run, args=(work(),))
    thread.start()
    thread.join(timeout=20)
    assert not thread.is_alive()


@linux_only
def test_calls_work_without_free_descriptors_for_pidfds(
    run: Run[None], mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", refuse)

    async def work() -> None:
        permit = RecordingPermit()
        async with Processes(grace_seconds=GRACE) as processes:
            assert await call(processes, shell("exit 5", mark=mark), permit=permit) == 5
            with pytest.raises(DeadlineExceededError):
                await call(processes, shell("sleep 600", mark=mark), seconds=0.1, permit=permit)
            await permit.freed()
        await until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("wait-")])

    run(work())


AS_INIT = """
import asyncio, os, sys
from gateway.processes.process_table import MARKER, own_identity
from gateway.processes.process_tree import Command
from gateway.processes.processes import Processes
from gateway.processes.process_table import child_pids
from tests.executors.recording import RecordingPermit
from tests.executors.test_processes import HOP

async def main():
    assert os.getpid() == 1
    permit = RecordingPermit()
    async with Processes(grace_seconds=0.2) as processes:
        hop = f"{sys.executable} -c '{HOP.format(100, 0)}'"
        more = ["(env -i setsid true &)", hop]
        for script in ["exit 4", "(setsid sleep 600 &)", "(sleep 600 &) & sleep 600 & true", *more]:
            command = Command(argv=["sh", "-c", script], environment=dict(os.environ), directory="/")
            deadline = asyncio.get_running_loop().time() + 10
            print(await processes.run(command, deadline=deadline, permit=permit), flush=True)
            await permit.freed()
        async with asyncio.timeout(10):
            while child_pids():
                await asyncio.sleep(0.01)

asyncio.run(main())
"""

NO_PROCESS_LEFT = """
import asyncio, os, resource, signal, sys, time
from pathlib import Path
from gateway.errors import ExecutionError
from gateway.deadline import DeadlineExceededError
from gateway.processes.process_tree import Command
from gateway.processes.processes import Processes
from tests.executors.recording import RecordingPermit

def fill():
    try:
        while len(sleepers) < 100:
            sleepers.append(os.posix_spawn("/bin/sleep", ["sleep", "600"], {}))
    except BlockingIOError:
        pass

def end_sleepers(places):
    for _ in range(places):
        os.kill(sleepers[-1], signal.SIGKILL)
        os.waitpid(sleepers.pop(), 0)

def has_ended(pid):
    # Detects the end without reaping the process.
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

def adopted():
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(pid) for pid in children}.difference(sleepers)

async def main():
    async with Processes() as processes:
        def run(script):
            command = Command(argv=["sh", "-c", script], environment=dict(os.environ), directory="/")
            return processes.run(command, deadline=asyncio.get_running_loop().time() + 20, permit=RecordingPermit())

        fill()
        try:
            await run("true")
        except ExecutionError as error:
            print(error)
        end_sleepers(4)
        before = adopted()
        os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "(setsid true &); (setsid true &)"], {}, setsid=True), 0)
        # Those two that ended take two places until they are reaped.
        while not all(map(has_ended, adopted() - before)):
            time.sleep(.01)
        fill()
        assert len(sleepers) < 40
        print(await run("exit 3"))

sleepers = []
# Only now: the interpreter may lie where this user may not read.
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_NPROC, (40, 40))
try:
    asyncio.run(main())
finally:
    end_sleepers(len(sleepers))
"""


def program(text: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a Python program that can import this project."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, "-c", text, *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, timeout=60, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user without processes")
@linux_only
def test_start_without_free_process_reaps_and_retries() -> None:
    nobody_else = 50_000 + os.getpid() % 10_000
    finished = program(NO_PROCESS_LEFT, str(nobody_else))
    assert finished.returncode == 0, finished.stderr
    said, code = finished.stdout.decode().splitlines()
    assert said.startswith("the program 'sh' cannot be started because a limit for processes is reached (RLIM")
    assert code == "3"


DAEMON = """
import asyncio, os, sys
from gateway.processes.process_tree import Command
from gateway.processes.processes import Processes
from tests.executors.recording import RecordingPermit

async def main(script):
    async with Processes() as processes:
        print(processes.tracked_by, flush=True)
        if script:
            command = Command(argv=["sh", "-c", script], environment=dict(os.environ), directory="/")
            await processes.run(command, deadline=asyncio.get_running_loop().time() + 60, permit=RecordingPermit())

asyncio.run(main(sys.argv[1]))
"""


@linux_only
def test_leftover_processes_are_ended_by_the_next_daemon(mark: str) -> None:
    script = "setsid sleep 600 & (sleep 600 &) & sleep 600"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "MARK": mark}
    argv = [sys.executable, "-c", DAEMON, script]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL) as killed:
        wait_until(lambda: len(alive(mark)) >= 5)
        killed.kill()
    # Another daemon on the machine can end them first.
    finished = program(DAEMON, "")
    assert finished.returncode == 0, finished.stderr
    wait_until(lambda: not alive(mark))


@linux_only
def test_only_certain_leftovers_are_ended_at_start(mark: str) -> None:
    """Processes of other daemons and of plugins stay."""
    namespace, own, started = own_identity().split(".")
    with subprocess.Popen(["true"]) as ended:
        pass
    spared = [
        f"{namespace}.{own}.{started}.0123456789abcdef-1",  # of this process
        f"{namespace}.{ended.pid}.1.0123456789abcdef",  # of a plugin
        f"{int(namespace) + 1}.{ended.pid}.1.0123456789abcdef-1",  # of another namespace
        f"{namespace}.{ended.pid}.0.0123456789abcdef-1",  # of a daemon with an unknown start time
        "my own",
    ]
    left_over = [f"{namespace}.{ended.pid}.1.0123456789abcdef-1", f"{namespace}.{own}.1.0123456789abcdef-1"]
    running = {
        marker: subprocess.Popen(["sleep", "600"], env={"MARK": mark, MARKER: marker})
        for marker in (*spared, *left_over)
    }
    try:
        assert program(DAEMON, "").returncode == 0
        assert [running[marker].wait(10) for marker in left_over] == [-signal.SIGKILL, -signal.SIGKILL]
        assert [running[marker].poll() for marker in spared] == [None] * len(spared)
    finally:
        for each in running.values():
            each.kill()
            each.wait()


@linux_only
def test_calls_work_as_the_first_process_of_a_container() -> None:
    before = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs permission to create a process namespace")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    finished = subprocess.run(
        [*before, sys.executable, "-c", AS_INIT],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (finished.stdout, finished.returncode) == (b"4\n0\n0\n0\n0\n", 0), finished.stderr


@pytest.mark.build
def test_starting_a_child_does_not_copy_the_daemon(run: Run[float]) -> None:
    """A fork of a large process copies page tables for tens of milliseconds. A vfork does not."""

    async def cost() -> float:
        async with Processes() as processes:
            times = []
            for _ in range(15):
                began = time.process_time()
                await call(processes, command("true"))
                times.append(time.process_time() - began)
            return sorted(times)[len(times) // 2]

    ballast = bytearray(os.urandom(1024) * 512 * 1024)
    assert len(ballast) > 2**29 - 1
    assert run(cost()) < 0.006
