"""The official clients of both lines, each in a separate environment: processes that carry out plans."""

import asyncio
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from tests.interop.drivers.plans import CERTIFICATES
from tests.programs import need_named_by

PROJECT: Final = Path(__file__).parents[2]
DRIVERS: Final = Path(__file__).parent / "drivers"
SECONDS: Final = 60


def interpreter(line: int) -> str:
    """The Python that has the official client of this line."""
    return need_named_by(
        f"MCP_GATEWAY_TEST_CLIENT_{line}", what=f"a Python with tests/interop/client-{line}x.txt installed"
    )


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process of a driver, and the file of what it says on standard error."""

    popen: "subprocess.Popen[str]"
    errors: IO[bytes]

    def ask(self, plan: dict[str, Any]) -> str:
        """Hand it a plan; return its answer, which is empty if it has ended."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.write(json.dumps(plan) + "\n")
        self.popen.stdin.flush()
        return self.popen.stdout.readline()

    def kill(self) -> None:
        self.popen.kill()
        self.popen.communicate()
        self.errors.close()

    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")


@dataclass(kw_only=True)
class OfficialClients:
    """The drivers in use: each process carries out one plan after the other, until one fails."""

    _processes: dict[str, Process] = field(default_factory=dict)

    async def carry_out(self, line: int, driver: str, plan: dict[str, Any]) -> Any:
        """Let a driver of this line carry out a plan, and return what it reports."""
        name = f"{driver}_{line}x.py"
        process = self._processes.pop(name, None) or _started(interpreter(line), name)
        variables = {CERTIFICATES: os.environ[CERTIFICATES]} if CERTIFICATES in os.environ else {}
        try:
            async with asyncio.timeout(SECONDS):
                answer = await asyncio.to_thread(process.ask, {**plan, "variables": variables})
            assert answer, process.said()
        except BaseException:
            process.kill()
            raise
        self._processes[name] = process
        return json.loads(answer)

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()


def _started(python: str, driver: str) -> Process:
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - the process ends with it
    popen = subprocess.Popen(
        [python, str(DRIVERS / driver)],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    return Process(popen=popen, errors=errors)
