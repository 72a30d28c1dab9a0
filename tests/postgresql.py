"""A PostgreSQL server for tests, from Debian's package, on a socket in a temporary directory."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

from tests.programs import skip_or_fail

_BINARIES: Final = Path("/usr/lib/postgresql")
_USER: Final = "tester"
_START_SECONDS: Final = 60


@dataclass
class Postgresql:
    """A server that can be stopped and started again."""

    directory: Path
    binaries: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://{_USER}@/postgres?host={self.directory}"

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self.binaries / "postgres",
                    *("-D", self.directory / "data", "-k", self.directory, "-h", "", "-F"),
                    *("-c", "max_connections=40", "-c", "shared_buffers=16MB"),
                ],
                user=_unprivileged(),
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"LC_ALL": "C", "PATH": os.defpath},
            )
        ready = [str(self.binaries / "pg_isready"), "-h", str(self.directory), "-U", _USER, "-t", "1", "-q"]
        for _ in range(_START_SECONDS):
            if subprocess.run(ready, check=False).returncode == 0:
                return
            assert self.process.poll() is None, (self.directory / "log").read_text()
            time.sleep(0.2)
        raise AssertionError((self.directory / "log").read_text())

    def stop(self) -> None:
        """Stop the server and close all connections."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)  # "fast shutdown"
            self.process.wait(timeout=60)
            self.process = None

    async def run(self, *statements: str) -> list[asyncpg.Record]:
        """Run statements on a new connection, and return the rows of the last one."""
        rows: list[asyncpg.Record] = []
        connection = await asyncpg.connect(host=str(self.directory), user=_USER, database="postgres")
        try:
            for statement in statements:
                rows = await connection.fetch(statement)
        finally:
            await connection.close()
        return rows

    async def wait_for(self, statement: str) -> None:
        """Wait until a statement returns a row."""
        async with asyncio.timeout(60):
            while not await self.run(statement):
                await asyncio.sleep(0.02)


@contextmanager
def running_postgresql() -> Iterator[Postgresql]:
    """Run a new server, and remove its files at the end."""
    found = sorted(_BINARIES.glob("*/bin/initdb"))
    if not found:
        skip_or_fail("needs Debian's package postgresql")
    directory = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # socket paths have a short length limit
    server = Postgresql(directory, found[-1].parent)
    try:
        if (user := _unprivileged()) is not None:
            shutil.chown(directory, user)
        subprocess.run(
            [server.binaries / "initdb", "-D", directory / "data", "-U", _USER, "-A", "trust", "-N", "-E", "UTF8"],
            user=_unprivileged(),
            check=True,
            capture_output=True,
            timeout=120,
            env={"LC_ALL": "C", "PATH": os.defpath},
        )
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _unprivileged() -> str | None:
    """Return the user to run the server as, because it refuses to run as root."""
    return "nobody" if os.geteuid() == 0 else None
