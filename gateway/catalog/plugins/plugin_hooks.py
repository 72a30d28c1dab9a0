"""Runs the hooks `startup()` and `shutdown()` of plugin modules with a time limit."""

import asyncio
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, Literal

from gateway.threads import DaemonThreadPool, NoThreadFreeError

_HOOK_SECONDS: Final = 30.0


class HookFailedError(Exception):
    pass


async def run_hook(
    module: ModuleType,
    name: Literal["startup", "shutdown"],
    *,
    threads: DaemonThreadPool,
    seconds: float = _HOOK_SECONDS,
) -> None:
    """Run the hook if the module defines it.

    Raises:
        HookFailedError: the hook raised an exception or exceeded the time limit.
    """
    hook = vars(module).get(name)
    if not callable(hook) or getattr(hook, "__module__", None) != module.__name__:
        return  # imported from another module
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        if inspect.iscoroutinefunction(hook):
            error = await _run_on_loop(hook, threads=threads, deadline=deadline)
        else:
            error = await threads.run(_error_of, hook, deadline=deadline)
    except NoThreadFreeError:
        raise HookFailedError(f"was not run: hooks of other plugins blocked all threads for {seconds:g} s") from None
    except TimeoutError:
        raise HookFailedError(f"did not finish within {seconds:g} s") from None
    if error is not None:
        raise HookFailedError(f"raised {type(error).__name__}: {error}") from error


async def _run_on_loop(hook: Callable[[], Any], *, threads: DaemonThreadPool, deadline: float) -> BaseException | None:
    # SystemExit in a task would end the event loop.
    async def error_of() -> BaseException | None:
        try:
            await hook()
        except BaseException as error:  # noqa: BLE001 - Boundary: a plugin may raise anything
            return error
        return None

    task = asyncio.create_task(error_of(), name="plugin hook")
    try:
        # `wait` does not wait for cancellation, so a stuck hook cannot block a reload.
        await asyncio.wait({task}, timeout=deadline - asyncio.get_running_loop().time())
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            threads.track_orphan(task)


def _error_of(hook: Callable[[], Any]) -> BaseException | None:
    try:
        hook()
    except BaseException as error:  # noqa: BLE001 - Boundary: a plugin may raise anything
        return error
    return None
