"""Tell the service manager how the daemon is doing: sd_notify(3), and its watchdog. Without one, nothing happens."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Final

_MICROSECONDS: Final = 1_000_000


class ServiceManager:
    """Where `NOTIFY_SOCKET` leads."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Take the variables out of the environment: what a tool runs must not speak for the daemon."""
        self._address: Final = environ.pop("NOTIFY_SOCKET", "")
        period, process = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        is_ours = process in {"", str(os.getpid())} and period.isascii() and period.isdigit()
        self._watchdog_seconds: Final = int(period) / _MICROSECONDS if is_ours else 0.0

    def ready(self, status: str) -> None:
        """It serves, or serves again."""
        self._say("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """It loads its files again; `ready` is said when that is done."""
        # Type=notify-reload wants to know that this is later than its signal.
        self._say("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self._say("STOPPING=1", "STATUS=Letting calls finish")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Show that the event loop turns, for as long as the context lasts."""
        if not self._address or self._watchdog_seconds <= 0:
            yield
            return
        task = asyncio.get_running_loop().create_task(self._show_life(), name="watchdog")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _show_life(self) -> None:
        while True:
            self._say("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_seconds / 2)

    def _say(self, *lines: str) -> None:
        """Send, or drop: a service manager that does not listen is no reason to stop serving."""
        if not self._address:
            return
        # A leading `@` stands for the NUL of an abstract address.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, address)
