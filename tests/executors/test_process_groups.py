"""Commands on systems where only the process group of a call can be ended."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from gateway.deadline import DeadlineExceededError
from gateway.processes import processes as module
from gateway.processes.process_tree import Command
from gateway.processes.processes import Processes
from tests.executors.recording import RecordingPermit
from tests.programs import is_running
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("_without_process_table")


@pytest.fixture
def _without_process_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "become_subreaper", lambda: False)


async def gone(*pids: int) -> None:
    await until(lambda: not any(map(is_running, pids)))


async def pid_in(path: Path) -> int:
    async with asyncio.timeout(60):
        while not path.exists() or not path.read_text().endswith("\n"):
            await asyncio.sleep(0.01)
    return int(path.read_text())


async def run(processes: Processes, script: str, *, seconds: float = 60, permit: RecordingPermit | None = None) -> int:
    return await processes.run(
        Command(argv=["sh", "-c", script], environment={"PATH": os.environ["PATH"]}, directory="/"),
        deadline=asyncio.get_running_loop().time() + seconds,
        permit=permit or RecordingPermit(),
    )


async def test_exit_codes_and_signals_are_returned() -> None:
    async with Processes() as processes:
        assert processes.tracked_by == "group"
        assert await run(processes, "exit 5") == 5
        assert await run(processes, "kill -KILL $$") == -signal.SIGKILL
        codes = await asyncio.gather(*(run(processes, f"exit {code}") for code in range(20)))
        assert codes == list(range(20))


async def test_background_children_end_with_their_call(tmp_path: Path) -> None:
    permit = RecordingPermit()
    async with Processes(grace_seconds=0.2) as processes:
        for script in ("sleep 600 &", "(trap '' TERM; exec sleep 600) &", "(sleep 600 & echo $! > pid) & wait"):
            path = tmp_path / "pid"
            path.unlink(missing_ok=True)
            script_with_pid = f"cd {tmp_path}; {script} test -e pid || echo $! > pid"
            assert await run(processes, script_with_pid, permit=permit) == 0
            await permit.freed()
            await gone(await pid_in(path))


async def test_background_child_can_clean_up(tmp_path: Path) -> None:
    permit = RecordingPermit()
    cleaned = tmp_path / "cleaned"
    child = f"trap 'sleep 0.1; touch {cleaned}; exit' TERM; touch {tmp_path}/ready; while :; do sleep 0.01; done"
    async with Processes(grace_seconds=60) as processes:
        script = f"({child}) >&- 2>&- & while [ ! -e {tmp_path}/ready ]; do sleep 0.01; done"
        assert await run(processes, script, permit=permit) == 0
        await permit.freed()
    assert cleaned.exists()


async def test_timeout_ends_the_group(tmp_path: Path) -> None:
    permit = RecordingPermit()
    async with Processes(grace_seconds=0.2) as processes:
        with pytest.raises(DeadlineExceededError):
            await run(processes, f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/pid; wait", seconds=1, permit=permit)
        assert processes.ending == 1
        await permit.freed()
        await gone(await pid_in(tmp_path / "pid"))
        assert (processes.running, processes.ending) == (0, 0)


async def test_running_commands_end_at_exit(tmp_path: Path) -> None:
    async with Processes(grace_seconds=0.2) as processes:
        call = asyncio.create_task(run(processes, f"sleep 600 & echo $! > {tmp_path}/pid; wait"))
        pid = await pid_in(tmp_path / "pid")
    assert await call == -signal.SIGTERM
    await gone(pid)


async def test_idle_daemon_does_not_look_for_processes() -> None:
    before = asyncio.all_tasks()
    async with Processes():
        assert asyncio.all_tasks() == before
