"""Notifies systemd of the daemon's state, and feeds its watchdog: sd_notify(3). Without systemd, does nothing."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Final

_MICROSECONDS: Final = 1_000_000


class ServiceManager:
    """The service manager behind `NOTIFY_SOCKET`."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Remove the variables from the environment: a child of a tool must not notify in the daemon's name."""
        self._address: Final = environ.pop("NOTIFY_SOCKET", "")
        period, process = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        # sd_watchdog_enabled(3): variables that name another process are not for this one.
        is_ours = process in {"", str(os.getpid())} and period.isascii() and period.isdigit()
        self._watchdog_seconds: Final = int(period) / _MICROSECONDS if is_ours else 0.0

    def ready(self, status: str) -> None:
        """The daemon serves, or has reloaded."""
        self._notify("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """The daemon reloads; `ready` follows."""
        # systemd.service(5), Type=notify-reload: must be later than its SIGHUP.
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self._notify("STOPPING=1", "STATUS=Letting calls finish")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Feed the watchdog from the event loop, for as long as the context lasts."""
        if not self._address or self._watchdog_seconds <= 0:
            yield
            return
        task = asyncio.get_running_loop().create_task(self._feed_watchdog(), name="watchdog")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _feed_watchdog(self) -> None:
        while True:
            self._notify("WATCHDOG=1")
            # sd_watchdog_enabled(3) recommends half of the time.
            await asyncio.sleep(self._watchdog_seconds / 2)

    def _notify(self, *lines: str) -> None:
        """Send, or drop: the daemon serves even if its service manager does not listen."""
        if not self._address:
            return
        # unix(7): a leading `@` stands for the NUL byte of an abstract address.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            # MSG_DONTWAIT: a service manager that does not read must not hold the event loop.
            sender.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, address)
