"""Reports the daemon's state to systemd (sd_notify(3))."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Final

_MICROSECONDS: Final = 1_000_000


class ServiceManager:
    """Notifies systemd of the daemon's state. Without `NOTIFY_SOCKET`, all methods do nothing."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Read systemd's variables and remove them from `environ`, so that child processes cannot notify systemd."""
        self._address: Final = environ.pop("NOTIFY_SOCKET", "")
        period, process = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        # Ignore variables that are meant for another process (sd_watchdog_enabled(3)).
        is_ours = process in {"", str(os.getpid())} and period.isascii() and period.isdigit()
        self._watchdog_seconds: Final = int(period) / _MICROSECONDS if is_ours else 0.0

    def ready(self) -> None:
        self._notify("READY=1")

    def reloading(self) -> None:
        # systemd.service(5), Type=notify-reload: the time must be later than the SIGHUP.
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self._notify("STOPPING=1")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Send watchdog messages from the event loop until the context exits."""
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
            # sd_watchdog_enabled(3) recommends half the timeout.
            await asyncio.sleep(self._watchdog_seconds / 2)

    def _notify(self, *lines: str) -> None:
        if not self._address:
            return
        # A leading `@` denotes an abstract address (unix(7)).
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, address)
