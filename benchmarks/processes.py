"""Starts the measured servers, and reads their resource usage from the kernel."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

TIMEOUT_SECONDS: Final = 60.0
"""The time limit for a server's next action."""
FAREWELL_SECONDS: Final = 5.0
_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
_NO_STATE: Final = {"MCP_GATEWAY_STATE_DIR": "none"}
"""Write nothing to the user's home."""
_UNCOMPILED: Final = "PYTHONDONTWRITEBYTECODE"
"""Not passed to servers, because installed programs have compiled modules."""
_LONGEST_LINE: Final = 16 * 2**20


@dataclass(frozen=True)
class Server:
    """A server process."""

    process: asyncio.subprocess.Process
    port: int = 0
    """The HTTP port; 0 for stdio."""

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of the process and its finished children (proc_pid_stat(5), in ticks)."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(_cpu_clock_of(self.process.pid)) + sum(map(int, fields[13:15])) * _TICK

    @property
    def resident_bytes(self) -> int:
        """The resident memory including shared libraries (proc_pid_smaps(5))."""
        rollup = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        kilobytes = next(line.split()[1] for line in rollup.splitlines() if line.startswith("Rss:"))
        return int(kilobytes) * 1024

    @property
    def has_ended(self) -> bool:
        return self.process.returncode is not None

    async def ask_line(self, line: bytes) -> bytes:
        """Send a line and return the response line."""
        assert self.process.stdout is not None
        self.tell_line(line)
        return await self.process.stdout.readline()

    def tell_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")


def _cpu_clock_of(pid: int) -> int:
    """Return the clock id of clock_getcpuclockid(3), in nanoseconds and with finished threads."""
    return (~pid << 3) | 2


@asynccontextmanager
async def started(
    command: Sequence[str], *, port: int = 0, environment: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Server]:
    """Start a server without waiting for it, and stop it with the context."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**{name: value for name, value in os.environ.items() if name != _UNCOMPILED}, **_NO_STATE, **environment},
        limit=_LONGEST_LINE,
    )
    try:
        yield Server(process, port)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
