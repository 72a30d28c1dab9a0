"""Whatever a child does, its call ends in time, and nothing of it is left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
import uvloop

from gateway.errors import ExecutionError
from gateway.executors.shell.captured import Capture
from gateway.executors.shell.process_table import child_pids
from gateway.executors.shell.process_tree import NOWHERE, Command, Sinks
from gateway.executors.shell.processes import DeadlineError, Processes
from tests.executors.recording import RecordingSlot

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

GRACE = 0.2

# A daemon as they are written: forks twice, with a session of its own in between.
DAEMONIZE = "import os, sys, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep({})"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run[Any]]:
    """Run a coroutine on each kind of loop, and see to it that no task is left."""
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
    """A text that stands in the environment of every process that a test starts; none may outlive it."""
    mark = uuid4().hex
    yield mark
    left = alive(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


@pytest.fixture
def inherited() -> set[int]:
    """Orphans of daemons that earlier tests ended: the test process is their subreaper, and has nothing of theirs."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    return set(child_pids())


def alive(mark: str) -> list[int]:
    """Processes with the mark in their environment, zombies apart, which have none."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


async def until(holds: Callable[[], object], *, seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


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
    slot: RecordingSlot | None = None,
    sinks: Sinks = NOWHERE,
    afterwards: Callable[[], None] = lambda: None,
) -> int:
    deadline = asyncio.get_running_loop().time() + seconds
    return await processes.run(
        what, deadline=deadline, slot=slot or RecordingSlot(), sinks=sinks, afterwards=afterwards
    )


def test_a_child_is_fed_and_heard_and_its_exit_code_known(run: Run[int]) -> None:
    out, err = Capture(1000), Capture(1000)

    async def work() -> int:
        async with Processes() as processes:
            sinks = Sinks(stdout=out.feed, stderr=err.feed)
            return await call(processes, shell("cat; echo no >&2; exit 3", stdin=b"in"), sinks=sinks)

    assert run(work()) == 3
    assert (out.data, err.data) == (b"in", b"no\n")


def test_a_signal_is_told_as_its_negative_number(run: Run[int]) -> None:
    async def work() -> int:
        async with Processes() as processes:
            return await call(processes, shell("kill -KILL $$"))

    assert run(work()) == -signal.SIGKILL


def test_a_child_without_input_reads_nothing_and_never_the_daemons(run: Run[int]) -> None:
    out = Capture(1000)

    async def work() -> int:
        async with Processes() as processes:
            return await call(processes, shell("cat; readlink /proc/self/fd/0"), sinks=Sinks(stdout=out.feed))

    assert run(work()) == 0
    assert out.data == b"/dev/null\n"


def test_a_child_has_no_descriptors_of_the_daemon(run: Run[int]) -> None:
    out = Capture(1000)
    inheritable = os.dup2(0, 100, inheritable=True)

    async def work() -> int:
        async with Processes() as processes:
            return await call(processes, command("ls", "/proc/self/fd"), sinks=Sinks(stdout=out.feed))

    run(work())
    os.close(inheritable)
    assert out.data == b"0\n1\n2\n3\n"  # the fourth is of ls itself


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("sleep 600", id="sleeps"),
        pytest.param("trap '' TERM; sleep 600", id="ignores TERM"),
        pytest.param("sleep 600 & trap '' TERM; sleep 601 & wait", id="forks"),
        pytest.param("(setsid sleep 600 &); sleep 601", id="setsids"),
        pytest.param("kill -STOP $$", id="is stopped"),
        pytest.param("exec >&- 2>&-; sleep 600", id="closes its pipes"),
        pytest.param("yes", id="floods stdout"),
        pytest.param("yes >&2", id="floods stderr"),
        pytest.param("trap 'yes' TERM; while :; do sleep 0.01; done", id="floods when told to end"),
        pytest.param(f"{sys.executable} -c '{DAEMONIZE.format(600)}'; sleep 600", id="daemonizes"),
        pytest.param("f() { (setsid sh -c 'trap \"\" TERM; sleep 600' &) ; }; f; f; sleep 600", id="all of it"),
    ],
)
def test_at_the_deadline_the_caller_hears_at_once_and_the_slot_is_free_when_the_tree_is_gone(
    run: Run[None], mark: str, script: str
) -> None:
    async def work() -> None:
        slot, gone = RecordingSlot(), asyncio.Event()
        async with Processes(grace_seconds=GRACE) as processes:
            with pytest.raises(DeadlineError, match=r"'sh' was ended: it took longer than 0.3 s"):
                await call(processes, shell(script, mark=mark), seconds=0.3, slot=slot, afterwards=gone.set)
            assert (processes.running, processes.ending) == (0, 1)
            assert not gone.is_set()
            await slot.freed()
            assert not alive(mark)
            assert gone.is_set()
            assert (processes.running, processes.ending) == (0, 0)

    run(work())


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("sleep 600 &", id="background"),
        pytest.param("(sleep 600 &)", id="double fork"),
        pytest.param("setsid sleep 600 &", id="setsid"),
        pytest.param("(setsid sleep 600 &)", id="double fork and setsid"),
        pytest.param("(env -i sleep 600 &)", id="without environment"),
        pytest.param("(trap '' TERM HUP; sleep 600 &)", id="ignores TERM"),
        pytest.param(f"{sys.executable} -c '{DAEMONIZE.format(600)}'", id="daemonizes"),
    ],
)
@pytest.mark.parametrize("exit_code", [0, 4])
def test_a_call_ends_with_its_main_process_and_takes_the_rest_along(
    run: Run[None], mark: str, inherited: set[int], script: str, exit_code: int
) -> None:
    out = Capture(1000)

    async def work() -> None:
        slot = RecordingSlot()
        async with Processes(grace_seconds=GRACE) as processes:
            whole = shell(f"{script}\necho said; exit {exit_code}", mark=mark)
            assert await call(processes, whole, slot=slot, sinks=Sinks(stdout=out.feed)) == exit_code
            await slot.freed()
            assert set(child_pids()) <= inherited

    run(work())
    assert out.data == b"said\n"


def test_what_a_background_process_writes_is_read_for_a_moment(run: Run[int], mark: str) -> None:
    out = Capture(1000)

    async def work() -> int:
        slot = RecordingSlot()
        async with Processes() as processes:
            background = shell("(sleep 0.03; echo late; sleep 600; echo never) & echo soon", mark=mark)
            exit_code = await call(processes, background, slot=slot, sinks=Sinks(stdout=out.feed))
            await slot.freed()
            return exit_code

    assert run(work()) == 0
    assert out.data == b"soon\nlate\n"


def test_a_cancelled_call_ends_its_tree_and_stays_cancelled(run: Run[None], mark: str) -> None:
    async def work() -> None:
        slot = RecordingSlot()
        async with Processes(grace_seconds=GRACE) as processes:
            task = asyncio.create_task(call(processes, shell("(setsid sleep 600 &); sleep 600", mark=mark), slot=slot))
            await until(lambda: len(alive(mark)) >= 3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await slot.freed()
            assert not alive(mark)

    run(work())


def test_a_flood_starves_nobody_and_is_not_kept(run: Run[int], mark: str) -> None:
    out = Capture(10_000)

    async def work() -> int:
        turns = 0
        async with Processes(grace_seconds=GRACE) as processes:
            task = asyncio.create_task(
                call(processes, shell("yes", mark=mark), seconds=0.5, sinks=Sinks(stdout=out.feed))
            )
            while not task.done():
                await asyncio.sleep(0)
                turns += 1
            assert isinstance(task.exception(), DeadlineError)
        return turns

    assert run(work()) > 100
    assert len(out.data) == 10_000
    assert out.omitted > 1_000_000


@pytest.mark.parametrize("script", ["exec <&-; sleep 0.1", "true", "head -c 10", "sleep 0.2"])
def test_a_child_that_does_not_read_its_input_harms_nobody(run: Run[int], script: str) -> None:
    async def work() -> int:
        async with Processes() as processes:
            return await call(processes, shell(script, stdin=b"x" * 10_000_000))

    assert run(work()) == 0


def test_a_large_input_arrives_whole(run: Run[int]) -> None:
    data, out = os.urandom(3_000_000), Capture(4_000_000)

    async def work() -> int:
        async with Processes() as processes:
            return await call(processes, command("cat", stdin=data), sinks=Sinks(stdout=out.feed))

    assert run(work()) == 0
    assert out.data == data


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (command("no-such-program"), "the program 'no-such-program' is not found, or the interpreter that its first"),
        (command("/etc/passwd"), "the program '/etc/passwd' may not be executed"),
        (command("/"), "the program '/' may not be executed"),
        (command("ls", directory="/no/such"), "the working directory '/no/such' cannot be entered: No such file"),
        (command("ls", directory="/etc/passwd"), "the working directory '/etc/passwd' cannot be entered: Not a dir"),
        (command("ls", *["x" * 100_000] * 30), "the arguments of 'ls' are too long together; `stdin` has no such"),
        (command("ls", "a\0b"), "'ls' cannot be started: embedded null byte"),
        (command("ls", "\ud800"), "'ls' cannot be started: "),
    ],
)
def test_a_command_that_cannot_be_started_says_why(run: Run[None], what: Command, message: str) -> None:
    async def work() -> None:
        gone = asyncio.Event()
        async with Processes() as processes:
            with pytest.raises(ExecutionError) as raised:
                await call(processes, what, afterwards=gone.set)
            assert str(raised.value).startswith(message)
            assert gone.is_set()
            assert processes.running == 0

    run(work())


def test_a_text_file_without_interpreter_line_says_why(run: Run[None], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o700)

    async def work() -> None:
        async with Processes() as processes:
            with pytest.raises(ExecutionError, match="cannot be started: Exec format error"):
                await call(processes, command(str(script)))

    run(work())


def test_on_exit_every_tree_is_ended_within_a_bound(run: Run[None], mark: str) -> None:
    async def work() -> None:
        async with asyncio.timeout(15), Processes(grace_seconds=GRACE) as processes:
            stubborn = shell("trap '' TERM; (setsid sleep 600 &); while :; do sleep 0.1; done", mark=mark)
            waiting = [asyncio.create_task(call(processes, stubborn)) for _ in range(3)]
            await until(lambda: len(alive(mark)) >= 6)
        assert not alive(mark)
        assert await asyncio.gather(*waiting) == [-signal.SIGKILL] * 3
        with pytest.raises(ExecutionError, match="the server is stopping"):
            await call(processes, shell("true"))

    run(work())


def test_the_status_of_a_child_that_is_not_ours_is_never_taken(run: Run[None], mark: str) -> None:
    """Neither of one in the daemon's session, nor of one with its own, while dozens of our trees come and go."""
    environment = {**os.environ, "MARK": mark}

    async def work() -> None:
        async with Processes(grace_seconds=GRACE) as processes:
            await asyncio.gather(*(call(processes, shell("(setsid true &); sleep 0.1 &")) for _ in range(20)))
            assert living.poll() is None

    with (
        subprocess.Popen(["sh", "-c", "exit 7"], env=environment) as short,
        subprocess.Popen(["sh", "-c", "exit 8"], env=environment, start_new_session=True) as apart,
        subprocess.Popen(["sleep", "2"], env=environment, start_new_session=True) as living,
    ):
        run(work())
        assert (short.wait(), apart.wait(), living.wait()) == (7, 8, 0)


def test_grandchildren_that_ended_by_themselves_are_reaped(run: Run[None], inherited: set[int]) -> None:
    async def work() -> None:
        async with Processes(patience_seconds=0.2) as processes:
            for script in ("(true &)", "(setsid true &)", f"{sys.executable} -c '{DAEMONIZE.format(0)}'; sleep 0.1"):
                await call(processes, shell(script))
            await asyncio.sleep(0.3)  # the patience that is had with a zombie nobody knows
            await call(processes, shell("true"))
            assert set(child_pids()) <= inherited

    run(work())


def test_many_calls_leave_nothing_behind(run: Run[None], mark: str) -> None:
    scripts = [
        "true",
        "exit 3",
        "echo x; echo y >&2",
        "sleep 600 &",
        "(setsid sleep 600 &)",
        "exec >&-; exec 2>&-",
        "cat",
    ]

    async def work() -> None:
        slot = RecordingSlot()
        async with Processes(grace_seconds=GRACE) as processes:
            await call(processes, shell("true"))
            before = resources()
            for _ in range(30):
                calls: list[Awaitable[int]] = [
                    call(processes, shell(each, mark=mark, stdin=b"x" * 100_000), slot=slot) for each in scripts
                ]
                late = call(processes, shell("sleep 600", mark=mark), seconds=0.05, slot=slot)
                await asyncio.gather(*calls, late, return_exceptions=True)
            await slot.freed()
            assert resources() == before

    run(work())


def resources() -> tuple[int, int, int, int]:
    """How many descriptors, threads, tasks and children there are."""
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return descriptors, threading.active_count(), len(asyncio.all_tasks()), len(child_pids())


def test_it_works_where_the_loop_is_not_in_the_main_thread(run: Run[None], mark: str) -> None:
    async def work() -> None:
        slot = RecordingSlot()
        async with Processes(grace_seconds=GRACE) as processes:
            assert await call(processes, shell("(setsid sleep 600 &); exit 5", mark=mark), slot=slot) == 5
            await slot.freed()

    thread = threading.Thread(target=run, args=(work(),))
    thread.start()
    thread.join(timeout=20)
    assert not thread.is_alive()


def test_it_works_without_pidfds(run: Run[None], mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")

    async def work() -> None:
        slot = RecordingSlot()
        async with Processes(grace_seconds=GRACE) as processes:
            assert await call(processes, shell("exit 5", mark=mark), slot=slot) == 5
            with pytest.raises(DeadlineError):
                await call(processes, shell("sleep 600", mark=mark), seconds=0.1, slot=slot)
            await slot.freed()
        await until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("wait-")])

    run(work())


AS_INIT = """
import asyncio, os
from gateway.executors.shell.process_table import child_pids
from gateway.executors.shell.process_tree import Command
from gateway.executors.shell.processes import Processes
from tests.executors.recording import RecordingSlot

async def main():
    assert os.getpid() == 1
    slot = RecordingSlot()
    async with Processes(grace_seconds=0.2) as processes:
        for script in ["exit 4", "(setsid sleep 600 &)", "(sleep 600 &) & sleep 600 & true"]:
            command = Command(argv=["sh", "-c", script], environment=dict(os.environ), directory="/")
            deadline = asyncio.get_running_loop().time() + 10
            print(await processes.run(command, deadline=deadline, slot=slot), flush=True)
            await slot.freed()
    assert child_pids() == []

asyncio.run(main())
"""


def test_it_works_as_the_first_process_of_a_container() -> None:
    unshare = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no permission to make a process namespace")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    finished = subprocess.run(
        [*unshare, sys.executable, "-c", AS_INIT], env=environment, capture_output=True, timeout=30, check=False
    )
    assert (finished.stdout, finished.returncode) == (b"4\n0\n0\n", 0), finished.stderr


def test_starting_a_child_does_not_copy_the_daemon(run: Run[float]) -> None:
    """A fork copies page tables, which takes tens of milliseconds where the parent is large; a vfork does not."""

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
