"""Runs blocking work of a call in worker threads: files, directories, and outputs too large for the event loop."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from gateway.errors import DeadlineExceededError, ExecutionError
from gateway.executors.deadline import Deadline
from gateway.executors.invocation import Permit
from gateway.executors.threads import DaemonThreadPool, NoThreadFreeError

T = TypeVar("T")


class BoundedCall(Protocol):
    """A call that blocking work is done for: every `Invocation` is one."""

    @property
    def deadline(self) -> Deadline: ...
    @property
    def permit(self) -> Permit: ...


MAX_ON_LOOP: Final = 2**19
"""Bytes, whose shaping takes a few hundredths of a second at the most."""


async def run_in_worker(function: Callable[[], T], *, what: str, call: BoundedCall, threads: DaemonThreadPool) -> T:
    """Return what `function`, which does `what`, returns in a thread.

    Raises:
        DeadlineExceededError: it had not returned at the deadline of `call`.
        ExecutionError: no thread came free by then.
    """
    began, deadline = asyncio.get_running_loop().time(), call.deadline.at
    try:
        return await threads.run(function, deadline=deadline, on_stuck=call.permit.hold_until_done)
    except NoThreadFreeError as error:
        raise ExecutionError(
            f"{what} did not begin: all threads for large outputs and files were busy until the deadline"
        ) from error
    except TimeoutError as error:
        raise DeadlineExceededError(what, deadline - began) from error


async def shaped(shape: Callable[[], T], *, size: int, call: BoundedCall, threads: DaemonThreadPool) -> T:
    """Return what `shape` makes of an outcome of `size` bytes: on the event loop if that is little, else in a thread.

    Raises:
        ExecutionError: it was not done at the deadline of `call`, or `shape` raised it.
    """
    if size <= MAX_ON_LOOP:
        return shape()
    return await run_in_worker(shape, what="Shaping the large output", call=call, threads=threads)
