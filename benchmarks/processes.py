"""The servers that are measured: started, asked by the kernel what they cost, and ended by their process ids."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

PATIENCE_SECONDS: Final = 60.0
"""For whatever a server is to do next."""
FAREWELL_SECONDS: Final = 5.0
_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
_NO_STATE: Final = {"MCP_GATEWAY_STATE_DIR": "none"}
"""Nothing is written into the home of who measures."""
_UNCOMPILED: Final = "PYTHONDONTWRITEBYTECODE"
"""Left out of the servers' environment: what is installed is compiled, and a start is not to be measured without."""
_LONGEST_LINE: Final = 16 * 2**20


@dataclass(frozen=True)
class Server:
    """One process."""

    process: asyncio.subprocess.Process
    port: int = 0
    """Where it serves HTTP; 0 if it speaks stdio."""

    @property
    def cpu_seconds(self) -> float:
        """What it has used, and its children that have ended (proc_pid_stat(5), which knows ticks alone)."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(_cpu_clock_of(self.process.pid)) + sum(map(int, fields[13:15])) * _TICK

    @property
    def resident_bytes(self) -> int:
        """Its memory, the shared libraries too (proc_pid_smaps(5): counted, where `status` estimates)."""
        rollup = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        kilobytes = next(line.split()[1] for line in rollup.splitlines() if line.startswith("Rss:"))
        return int(kilobytes) * 1024

    @property
    def has_ended(self) -> bool:
        return self.process.returncode is not None

    async def ask_line(self, line: bytes) -> bytes:
        """One round trip on standard input and output."""
        assert self.process.stdout is not None
        self.tell_line(line)
        return await self.process.stdout.readline()

    def tell_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")


def _cpu_clock_of(pid: int) -> int:
    """The clock that clock_getcpuclockid(3) gives for a process: in nanoseconds, its threads that have ended too."""
    return (~pid << 3) | 2


@asynccontextmanager
async def started(
    command: Sequence[str], *, port: int = 0, environment: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Server]:
    """Start a server, not wait until it is ready; end it with the context."""
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
