"""Logs uncaught exceptions of threads that a plugin started, and of finalizers.

Python would print them on standard error as they are (`threading.excepthook`, `sys.unraisablehook`). As events of the
log their secrets are masked.
"""

import sys
import threading
from typing import Final

import structlog

log: Final = structlog.get_logger(__name__)


class UncaughtExceptions:
    """Replaces the two hooks between `start` and `stop`. Hooks that others had installed are called as well."""

    def start(self) -> None:
        self._of_threads, self._of_objects = threading.excepthook, sys.unraisablehook
        threading.excepthook, sys.unraisablehook = self._thread_failed, self._ignored

    def stop(self) -> None:
        threading.excepthook, sys.unraisablehook = self._of_threads, self._of_objects

    def _thread_failed(self, failed: threading.ExceptHookArgs) -> None:
        # As threading.excepthook has it: SystemExit ends a thread in silence.
        if failed.exc_type is SystemExit:
            return
        name = "" if failed.thread is None else failed.thread.name
        log.error("thread failed", thread=name, exc_info=failed.exc_value or failed.exc_type())
        if self._of_threads is not threading.__excepthook__:
            self._of_threads(failed)

    def _ignored(self, failed: "sys.UnraisableHookArgs") -> None:
        where = failed.err_msg or f"in {type(failed.object).__name__}"
        log.error("exception ignored", where=where, exc_info=failed.exc_value or failed.exc_type())
        if self._of_objects is not sys.__unraisablehook__:
            self._of_objects(failed)
