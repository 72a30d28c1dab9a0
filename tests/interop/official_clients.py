"""Both versions of the official client, each in a separate environment."""

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
    """Return the Python with this version of the official client."""
    return need_named_by(
        f"MCP_GATEWAY_TEST_CLIENT_{line}", what=f"a Python with tests/interop/client-{line}x.txt installed"
    )


@dataclass(frozen=True, kw_only=True)
class Process:
    """The process of a driver, and the file with its standard error."""

    popen: "subprocess.Popen[str]"
    errors: IO[bytes]

    def ask(self, plan: dict[str, Any]) -> str:
        """Send a plan, and return the response, which is empty if the process has exited."""
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
    """The running drivers. A driver runs several plans, until one fails."""

    _processes: dict[str, Process] = field(default_factory=dict)

    async def carry_out(self, line: int, driver: str, plan: dict[str, Any]) -> Any:
        """Run a plan with a driver of this version, and return its outcome."""
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
