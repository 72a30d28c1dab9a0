"""The daemon's threads: bounded, with deadlines, and never joined at exit."""

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator

import pytest

from gateway.threads import DaemonThreadPool, NoThreadFreeError
from tests.programs import linux_only
from tests.waiting import until

VARIABLE = contextvars.ContextVar("VARIABLE", default="unset")


def soon(seconds: float = 15.0) -> float:
    return asyncio.get_running_loop().time() + seconds


OTHERS: set[threading.Thread] = set()
"""Threads of gateways from other tests."""


@pytest.fixture(autouse=True)
def _others() -> None:
    OTHERS.clear()
    OTHERS.update(threading.enumerate())


def plugin_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "plugin" and thread not in OTHERS]


async def until_there_are_no_threads() -> None:
    await until(lambda: not plugin_threads())


@pytest.fixture
async def threads() -> AsyncIterator[DaemonThreadPool]:
    async with DaemonThreadPool(2) as threads:
        yield threads
    await until_there_are_no_threads()


async def test_function_runs_in_a_thread_with_the_callers_context(threads: DaemonThreadPool) -> None:
    VARIABLE.set("set")
    name, value = await threads.run(lambda: (threading.current_thread().name, VARIABLE.get()), deadline=soon())
    assert (name, value) == ("plugin", "set")


async def test_thread_is_reused(threads: DaemonThreadPool) -> None:
    idents = {await threads.run(threading.get_ident, deadline=soon()) for _ in range(100)}
    assert len(idents) == 1


async def test_function_errors_are_raised(threads: DaemonThreadPool) -> None:
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0, deadline=soon())


async def test_cancelled_error_of_a_function_does_not_cancel_its_caller(threads: DaemonThreadPool) -> None:
    def cancel() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="raised CancelledError"):
        await threads.run(cancel, deadline=soon())


async def test_call_times_out_and_its_thread_counts_as_stuck(threads: DaemonThreadPool) -> None:
    release = threading.Event()
    held: list[asyncio.Task[None]] = []
    with pytest.raises(TimeoutError):
        await threads.run(release.wait, deadline=soon(0.05), on_stuck=held.append)
    assert (threads.busy, threads.stuck) == (1, 1)
    assert not held[0].done()
    release.set()
    async with asyncio.timeout(15):
        await held[0]
    assert (threads.busy, threads.stuck) == (0, 0)


async def test_cancelled_caller_leaves_a_stuck_thread(threads: DaemonThreadPool) -> None:
    release, started = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def stick() -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait()

    held: list[asyncio.Task[None]] = []
    call = asyncio.create_task(threads.run(stick, deadline=soon(), on_stuck=held.append))
    await started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert threads.stuck == 1
    release.set()
    async with asyncio.timeout(15):
        await held[0]


async def test_calls_wait_for_a_thread_until_their_deadline(threads: DaemonThreadPool) -> None:
    release = threading.Event()
    stuck = [asyncio.create_task(threads.run(release.wait, deadline=soon())) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(NoThreadFreeError):
        await threads.run(int, deadline=soon(0.05))
    waiting = asyncio.create_task(threads.run(int, deadline=soon()))
    release.set()
    assert await waiting == 0
    await asyncio.gather(*stuck)


async def test_threads_never_exceed_the_limit(threads: DaemonThreadPool) -> None:
    running = most = 0
    lock = threading.Lock()

    def count() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.001)
        with lock:
            running -= 1

    await asyncio.gather(*(threads.run(count, deadline=soon()) for _ in range(100)))
    assert most == 2
    assert len(plugin_threads()) == 2


async def test_stop_does_not_wait_and_leaves_no_task() -> None:
    release = threading.Event()
    before = asyncio.all_tasks()
    async with DaemonThreadPool(2) as threads:
        await asyncio.gather(*(threads.run(time.sleep, 0.01, deadline=soon()) for _ in range(2)))
        with pytest.raises(TimeoutError):
            await threads.run(release.wait, deadline=soon(0.02), on_stuck=lambda _: None)
    assert asyncio.all_tasks() == before
    release.set()
    await until_there_are_no_threads()


async def test_idle_thread_holds_no_values(threads: DaemonThreadPool) -> None:
    class Thing:
        pass

    thing = Thing()
    reference = weakref.ref(thing)
    await threads.run(id, thing, deadline=soon())
    del thing
    async with asyncio.timeout(15):
        while reference() is not None:
            gc.collect()
            await asyncio.sleep(0.001)


EXIT = """
import asyncio, threading
from gateway.threads import DaemonThreadPool

async def main():
    async with DaemonThreadPool(1) as threads:
        try:
            await threads.run(threading.Event().wait, deadline=asyncio.get_running_loop().time() + 0.05)
        except TimeoutError:
            print("answered")

asyncio.run(main())
"""


def test_exit_does_not_wait_for_a_hanging_function() -> None:
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=30, check=True)
    assert "answered" in done.stdout


RETURN_AFTER_THE_LOOP = """
import asyncio, threading
from gateway.threads import DaemonThreadPool

release = threading.Event()

async def main():
    try:
        await DaemonThreadPool(1).run(release.wait, deadline=asyncio.get_running_loop().time() + 0.05)
    except TimeoutError:
        pass

asyncio.run(main())
(thread,) = [thread for thread in threading.enumerate() if thread.name == "plugin"]
release.set()
thread.join(15)
print("ended", not thread.is_alive())
"""


def test_function_that_outlives_its_loop_ends_quietly() -> None:
    command = [sys.executable, "-c", RETURN_AFTER_THE_LOOP]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout.strip(), done.stderr) == ("ended True", "")


NO_THREAD = """
import asyncio, resource
from gateway.errors import ExecutionError
from gateway.threads import DaemonThreadPool

async def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    async with DaemonThreadPool(1) as threads:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**20, hard))  # a thread has a stack of megabytes
        try:
            await threads.run(int, deadline=asyncio.get_running_loop().time() + 15)
        except ExecutionError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        print(await threads.run(int, deadline=asyncio.get_running_loop().time() + 15))

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@linux_only
def test_failure_to_start_a_thread_is_an_error_of_the_call() -> None:
    done = subprocess.run([sys.executable, "-c", NO_THREAD], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.splitlines() == ["cannot start a thread: can't start new thread", "0"], done.stderr
