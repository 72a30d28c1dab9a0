"""A MariaDB server for tests, from Debian's package, on a socket in a temporary directory."""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.programs import need, skip_or_fail

_USER: Final = "tester"
_PASSWORD: Final = "pa%ss:word"
_START_SECONDS: Final = 90


@dataclass
class Mariadb:
    """A server that can be stopped and started again."""

    directory: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        password = _PASSWORD.replace("%", "%25").replace(":", "%3A")
        return f"mysql://{_USER}:{password}@localhost/shop?unix_socket={self.directory / 'socket'}"

    @property
    def certificate(self) -> Path:
        """The self-signed certificate of the server."""
        return self.directory / "certificate.pem"

    def start(self) -> None:
        setup = self.directory / "setup.sql"
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    need("mariadbd"),
                    "--no-defaults",
                    *(f"--datadir={self.directory / 'data'}", f"--socket={self.directory / 'socket'}"),
                    *("--skip-networking", f"--init-file={setup}"),
                    *(f"--ssl-cert={self.certificate}", f"--ssl-key={self.directory / 'key.pem'}"),
                    f"--ssl-ca={self.certificate}",
                    *("--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0", "--max-connections=40"),
                    *("--character-set-server=utf8mb4", "--skip-name-resolve"),
                ],
                user=_unprivileged(),
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"LC_ALL": "C", "PATH": os.defpath, "HOME": str(self.directory)},
            )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(str(self.directory / "socket"))
            except OSError:
                assert self.process.poll() is None, (self.directory / "log").read_text()
                time.sleep(0.2)
            else:
                return
        raise AssertionError((self.directory / "log").read_text())

    def stop(self) -> None:
        """Kill the server, which closes all connections."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=60)
            self.process = None

    async def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements on a new connection, and return the rows of the last one."""
        import asyncmy  # noqa: PLC0415 - an optional dependency

        rows: list[tuple[Any, ...]] = []
        connection = await asyncmy.connect(
            unix_socket=str(self.directory / "socket"), user=_USER, password=_PASSWORD, database="shop", autocommit=True
        )
        try:
            for statement in statements:
                async with connection.cursor() as cursor:
                    await cursor.execute(statement)
                    rows = list(await cursor.fetchall())
        finally:
            await connection.ensure_closed()
        return rows

    async def wait_for(self, statement: str) -> None:
        """Wait until a statement returns a row."""
        async with asyncio.timeout(90):
            while not await self.run(statement):
                await asyncio.sleep(0.02)


@contextmanager
def running_mariadb() -> Iterator[Mariadb]:
    """Run a new server, and remove its files at the end."""
    installer = shutil.which("mariadb-install-db")
    if installer is None:
        skip_or_fail("needs Debian's package mariadb-server")
    directory = Path(tempfile.mkdtemp(prefix="mariadb-", dir="/tmp"))  # socket paths have a short length limit
    server = Mariadb(directory)
    try:
        if (user := _unprivileged()) is not None:
            shutil.chown(directory, user)
        subprocess.run(
            [
                installer,
                *("--no-defaults", f"--datadir={directory / 'data'}", "--auth-root-authentication-method=normal"),
                "--skip-test-db",
            ],
            user=_unprivileged(),
            check=True,
            capture_output=True,
            timeout=240,
            env={"LC_ALL": "C", "PATH": f"{os.defpath}:/usr/sbin", "HOME": str(directory)},
        )
        subprocess.run(
            [
                *(need("openssl"), "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "2"),
                *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
                *("-keyout", directory / "key.pem", "-out", server.certificate),
            ],
            user=_unprivileged(),
            check=True,
            capture_output=True,
            timeout=120,
        )
        (directory / "setup.sql").write_text(
            "CREATE DATABASE IF NOT EXISTS shop;\n"
            f"CREATE USER IF NOT EXISTS '{_USER}'@'%' IDENTIFIED BY '{_PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{_USER}'@'%';\n"
        )
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _unprivileged() -> str | None:
    """Return the user to run the server as, because it refuses to run as root."""
    return "nobody" if os.geteuid() == 0 else None
